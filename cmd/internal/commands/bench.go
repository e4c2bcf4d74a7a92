package commands

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// benchCommand runs quorate-bench. It is a separate program, because load generators and reports do
// not belong into what runs beside kubelets' credentials.
func benchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "bench",
		Short: "Measure a cluster",
		Long: `Runs quorate-bench, which must be in the directory of this program, with the same arguments.
'quorate bench --help' shows its help.`,
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		ValidArgsFunction:  completeBench,
		RunE: func(_ *cobra.Command, args []string) error {
			program, err := benchProgram()
			if err != nil {
				return err
			}
			if err := syscall.Exec(program, append([]string{program}, args...), os.Environ()); err != nil {
				return fmt.Errorf("run %s: %w", program, err)
			}
			return nil
		},
	}
}

// benchProgram returns the path of the quorate-bench beside this program. PATH is not searched: another
// version may be there. What lies beside this program is believed to be built with it.
func benchProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find quorate-bench: %w", err)
	}
	program := self + "-bench"
	if info, err := os.Stat(program); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("there is no %s: 'make build' in a checkout makes both programs, and go install github.com/quorate/quorate/cmd/quorate-bench@VERSION the one", program)
	}
	return program, nil
}

// completeBench asks quorate-bench for what the words typed so far can go on with.
func completeBench(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	program, err := benchProgram()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c := exec.Command(program, append(append([]string{cobra.ShellCompRequestCmd}, args...), typed)...)
	c.Stderr = io.Discard
	out, err := c.Output()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	// The last line is a colon and the directive.
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	directive, err := strconv.Atoi(strings.TrimPrefix(last, ":"))
	if err != nil || !strings.HasPrefix(last, ":") {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:len(lines)-1], cobra.ShellCompDirective(directive)
}
