// Judge judges saved histories again and draws them.
//
//	go run ./test/judges/judge FILE...            FILE.html beside each
//	go run ./test/judges/judge -o DIR FILE...     into DIR, with an index.html
//
// A file is what history.Save wrote, or a history as text (history.Parse). The
// exit status is 1 if a promise was broken, 2 if a file could not be read.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/quorate/quorate/test/judges/check"
	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/report"
)

var errBroken = errors.New("a promise was broken")

func main() {
	switch err := run(os.Args[1:], os.Stdout); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errBroken):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(2)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("judge", flag.ContinueOnError)
	dir := flags.String("o", "", "write the pages and an index.html into `DIR` (default: each page beside its file)")
	quiet := flags.Bool("q", false, "draw nothing")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: go run ./test/judges/judge [-o DIR] [-q] FILE...")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return errors.New("no file")
	}
	var runs []report.Run
	broken := false
	for _, name := range flags.Args() {
		h, err := history.Load(name)
		if err != nil {
			return err
		}
		v := check.All(h)
		broken = broken || !v.OK()
		fmt.Fprintf(out, "%s\n%s", name, v)
		if *quiet {
			continue
		}
		page := pageOf(name, *dir)
		if err := report.File(page, h, v); err != nil {
			return err
		}
		fmt.Fprintf(out, "drawn: %s\n\n", page)
		runs = append(runs, report.Run{Name: h.Name, Seed: h.Seed, Verdict: v, Link: filepath.Base(page), Note: filepath.Base(name)})
	}
	if *dir != "" && !*quiet {
		index := filepath.Join(*dir, "index.html")
		if err := report.IndexFile(index, "Judged histories", runs); err != nil {
			return err
		}
		fmt.Fprintf(out, "index: %s\n", index)
	}
	if broken {
		return errBroken
	}
	return nil
}

// pageOf returns the name of a file's page.
func pageOf(name, dir string) string {
	base := filepath.Base(name)
	for _, ext := range []string{".gz", ".json", ".txt"} {
		base = strings.TrimSuffix(base, ext)
	}
	if dir == "" {
		dir = filepath.Dir(name)
	}
	return filepath.Join(dir, base+".html")
}
