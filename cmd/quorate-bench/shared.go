package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report"
	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes of the bench commands, beside 0.
const (
	exitBroken     = 1 // everything was measured, and a promise was broken
	exitUnmeasured = 2
)

// benchOutput are the flags that say where the report goes. Empty: nowhere.
type benchOutput struct {
	dir  string
	json string
	html string
	csv  string // not all commands have these
	svg  string
}

// benchReport is what a bench command has measured: its JSON, and the same for people. Some have other
// forms, too: WriteCSV, WriteSVG, Histograms.
type benchReport interface {
	Failed() bool
	Doc() *report.Doc
}

// benchRuns lets a command run what measures, with the exit codes of all bench commands.
func benchRuns(c *cobra.Command, run func(ctx context.Context, cmd *cobra.Command) error) {
	if c.Args == nil {
		c.Args = func(cmd *cobra.Command, args []string) error { return unmeasured(cli.NoArguments(cmd, args)) }
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		// The terminal that goes away must not leave a cluster behind.
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
		defer stop()
		// This program shares the machine with what it measures: it collects garbage seldom.
		defer debug.SetGCPercent(debug.SetGCPercent(400))
		err := run(ctx, cmd)
		var exit cli.ExitError
		switch {
		case err == nil || errors.As(err, &exit):
			return err
		case ctx.Err() != nil && errors.Is(err, context.Canceled):
			return cli.ExitError{Code: cli.ExitStopped, Text: "stopped"}
		}
		return unmeasured(err)
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unmeasured(err) })
}

// flags adds those of the output. name is that of the files in the directory.
func (b *benchOutput) flags(f *pflag.FlagSet, name string, csv bool) {
	files := name + ".json and " + name + ".html"
	if csv {
		files = name + ".json, " + name + ".csv and " + name + ".html"
		f.StringVar(&b.csv, "csv", "", "file for the time line as CSV")
	}
	f.StringVar(&b.dir, "output-dir", "", "directory for "+files)
	f.StringVar(&b.json, "json", "", "file for the JSON, - for standard output instead of the table")
	f.StringVar(&b.html, "html", "", "file for the HTML page")
}

// unmeasured is an error with the exit code for what could not be measured. The
// code 1 is for broken promises alone.
func unmeasured(err error) error {
	if err == nil {
		return nil
	}
	return cli.ExitError{Code: exitUnmeasured, Text: "error: " + err.Error()}
}

// need refuses a flag that says nothing without another.
func need(f *pflag.FlagSet, one, other string) error {
	if f.Changed(one) && !f.Changed(other) {
		return fmt.Errorf("--%s needs --%s", one, other)
	}
	return nil
}

func excludeEachOther(f *pflag.FlagSet, one, other string) error {
	if f.Changed(one) && f.Changed(other) {
		return fmt.Errorf("--%s and --%s exclude each other", one, other)
	}
	return nil
}

// provenance is the command line and the commit, for reports.
func provenance() (command, builtFrom string) {
	builtFrom = build.Commit
	if builtFrom == "" {
		builtFrom = "unknown"
	}
	return strings.Join(os.Args, " "), builtFrom
}

// complete names the files in the directory and finds out what cannot be written, before
// anything is measured.
func (b *benchOutput) complete(name string) error {
	if b.dir != "" {
		for end, file := range map[string]*string{".json": &b.json, ".html": &b.html, ".csv": &b.csv} {
			if *file == "" {
				*file = filepath.Join(b.dir, name+end)
			}
		}
		if err := os.MkdirAll(b.dir, 0o755); err != nil {
			return err
		}
	}
	for _, file := range []string{b.json, b.html, b.csv} {
		if info, err := os.Stat(filepath.Dir(file)); err != nil {
			return err
		} else if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", filepath.Dir(file))
		}
	}
	return nil
}

// finish writes the report in all forms that are asked for, and returns the error of one that failed.
func (b *benchOutput) finish(name string, r benchReport, out io.Writer, failure string) error {
	if err := b.write(name, r, out); err != nil {
		return err
	}
	if r.Failed() {
		return cli.ExitError{Code: exitBroken, Text: "error: " + failure + ": see above"}
	}
	return nil
}

func (b *benchOutput) write(name string, r benchReport, out io.Writer) error {
	doc := r.Doc()
	json := func(w io.Writer) error { return report.WriteJSON(w, r) }
	if r, ok := r.(interface{ WriteJSON(io.Writer) error }); ok {
		json = r.WriteJSON
	}
	table := doc.WriteTable
	if b.json == "-" {
		table = json
	}
	if err := table(out); err != nil {
		return err
	}
	type form struct {
		file  string
		write func(io.Writer) error
	}
	forms := []form{{b.json, json}, {b.html, doc.WriteHTML}}
	if r, ok := r.(interface{ WriteCSV(io.Writer) error }); ok {
		forms = append(forms, form{b.csv, r.WriteCSV})
	}
	if r, ok := r.(interface{ WriteSVG(io.Writer) error }); ok {
		forms = append(forms, form{b.svg, r.WriteSVG})
	}
	said := []string{""}
	for _, x := range forms {
		if x.file == "" || x.file == "-" {
			continue
		}
		if err := writeFile(x.file, x.write); err != nil {
			return err
		}
		said = append(said, x.file)
	}
	if r, ok := r.(interface{ Histograms() []measure.Named }); ok && b.dir != "" {
		if err := measure.WriteFiles(b.dir, name, r.Histograms()); err != nil {
			return err
		}
		said = append(said, filepath.Join(b.dir, name+"-*.hgrm"))
	}
	if b.json != "-" && len(said) > 1 {
		fmt.Fprintln(out, strings.Join(said, "\n"))
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
