package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/quorate/quorate/test/harness/kubeapiserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "golden:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("golden", flag.ContinueOnError)
	record := flags.Bool("record", false, "write the answers of kube-apiserver to each of the stories into NAME.golden beside it")
	programs := flags.String("programs", "bin", "`DIR` with etcd and kube-apiserver ('make peers')")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: go run ./test/system/golden -record [-programs DIR] FILE.txt...")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !*record || flags.NArg() == 0 {
		flags.Usage()
		return errors.New("nothing to record")
	}
	var stories []*recording
	for _, file := range flags.Args() {
		if strings.HasSuffix(file, differencesSuffix) {
			continue
		}
		s, err := readStory(file)
		if err != nil {
			return err
		}
		stories = append(stories, s)
	}
	var errs []error
	for _, s := range stories {
		begin := time.Now()
		blocks, err := s.record(ctx, *programs)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(out, "%s: %d answers in %.1f s\n", s.Name, len(blocks), time.Since(begin).Seconds())
	}
	return errors.Join(errs...)
}

// differencesSuffix ends the name of the list of the differences of a story.
const differencesSuffix = ".differences.txt"

// golden is the file with the answers to a story.
func (r *recording) golden() string { return strings.TrimSuffix(r.file, ".txt") + ".golden" }

// record tells a story to a kube-apiserver, and writes its answers.
func (s *recording) record(ctx context.Context, programs string) (blocks []block, err error) {
	hooks, err := startWebhooks(s.webhooks)
	if err != nil {
		return nil, err
	}
	defer hooks.close()
	audit := &auditLog{}
	k, err := kubeapiserver.Start(ctx, programs, "", func(dir string) ([]string, error) {
		audit.path = auditPath(dir)
		return s.serverFlags(dir, hooks.vars)
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Stop()) }()
	if blocks, err = s.play(ctx, &server{url: k.URL, client: k.Client, audit: audit, upstream: true}, hooks); err != nil {
		return nil, err
	}
	text, err := encode("The answers of kube-apiserver "+kubeapiserver.Version+" to "+s.Name+".txt: make golden writes them.", blocks)
	if err != nil {
		return nil, err
	}
	return blocks, os.WriteFile(s.golden(), []byte(text), 0o644)
}
