package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/quorate/quorate/bench/compare"
	"github.com/quorate/quorate/bench/report"
	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
)

func benchCompareCommand() *cobra.Command {
	var failAbove, output string
	c := &cobra.Command{
		Use:   "compare A B",
		Short: "Tell which figures of bench reports differ",
		Long: `Compares the reports of 'quorate bench load', 'modes' or 'faults' (their JSON) of one
state of affairs with those of another: for each figure both medians, the difference,
and the interval that it lies in with a confidence of 95 %. A and B are files, or
directories with all reports in and below them. With more than two, each of the others
is compared with the first.

A value is a run of 'bench load' (--repeat), a report of 'bench modes', a repeat of
'bench faults'. The interval is exact for any distribution (Mann and Whitney, Hodges and
Lehmann); it needs four runs of each. Where it holds zero, there is no difference that
can be told: measure more runs to see smaller ones. Two builds are measured in turns,
since machines change over the hours:

  for i in 1 2 3 4 5 6; do
    old/quorate bench load --json results/old/$i.json
    new/quorate bench load --json results/new/$i.json
  done
  quorate bench compare results/old results/new`,
		Example: `  quorate bench compare before.json after.json
  quorate bench compare results/old results/new --fail-above 5%`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return unmeasured(errors.New("want at least two reports, or directories of them: quorate bench compare A B"))
			}
			return nil
		},
	}
	benchRuns(c, func(_ context.Context, cmd *cobra.Command) error {
		limit, err := parseShare(failAbove)
		if err != nil {
			return fmt.Errorf("--fail-above %w", err)
		}
		if output != "table" && output != "json" {
			return fmt.Errorf("--output %q: must be table or json", output)
		}
		var sets []*compare.Set
		for _, path := range cmd.Flags().Args() {
			s, err := compare.Read(path)
			if err != nil {
				return err
			}
			sets = append(sets, s)
		}
		r, err := compare.Compare(sets)
		if err != nil {
			return err
		}
		if output == "json" {
			err = report.WriteJSON(cmd.OutOrStdout(), r)
		} else {
			err = r.WriteTable(cmd.OutOrStdout())
		}
		if err != nil || failAbove == "" {
			return err
		}
		if worse := r.WorseThan(limit); len(worse) > 0 {
			return cli.ExitError{Code: exitBroken, Text: fmt.Sprintf("error: %d figures are worse by more than %s, as %s %s of %s", len(worse), failAbove, worse[0].Row, worse[0].Figure, worse[0].With)}
		}
		if n := len(r.Untold()); n > 0 {
			return fmt.Errorf("--fail-above: nothing can be told of %d figures: there must be %d runs of each", n, compare.LeastRuns)
		}
		return nil
	})
	cli.ExitCodes(c,
		cli.Note{"1", "with --fail-above: a figure is worse by more than that, told with a confidence of 95 %"},
		cli.Note{"2", "the reports cannot be compared; with --fail-above also if there are too few runs"})
	f := c.Flags()
	f.StringVar(&failAbove, "fail-above", "", "fail if a figure is worse by more than this share, as in 5%")
	f.StringVarP(&output, "output", "o", "table", "table or json")
	cli.CompleteOutput(c, "table", "json")
	return c
}

// parseShare reads 5% or 0.05. Empty is zero.
func parseShare(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f <= 100) {
		return 0, fmt.Errorf("%q: must be a share, as in 5%%", text)
	}
	return f, nil
}
