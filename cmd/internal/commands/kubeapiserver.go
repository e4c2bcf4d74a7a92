package commands

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/collector"
	"github.com/quorate/quorate/internal/kubeapiserver"
	"github.com/quorate/quorate/node"
	"github.com/spf13/cobra"
)

// calledAs are names of other programs, which tools start by name: a link of that name to this
// program is the subcommand.
var calledAs = map[string]string{"kube-apiserver": "kube-apiserver", "etcd": "etcd-stub"}

func kubeAPIServerCommand() *cobra.Command {
	o := kubeapiserver.New()
	// Tests of others pass no flag of ours.
	if list := os.Getenv(envPrefix + "CONTROLLERS"); list != "" {
		o.Controllers = strings.Split(list, ",")
	}
	c := &cobra.Command{
		Use: "kube-apiserver", Short: "Serve with kube-apiserver's flags, for tools that start one", Args: cli.NoArguments,
		Long: `Serves the Kubernetes API with the flags of kube-apiserver, for tests that start one:
envtest, kwokctl, and others. What a flag asks for is done, or passed over with a line
in the log where that is harmless, or refused. A link named kube-apiserver to this
program does the same.

The data ends with the server, and the server with the process that has started it,
unless it was started as a daemon or --quorate-data-dir names a directory. To run a
cluster: quorate node.

Controllers run as in a cluster. For tests that expect none beside kube-apiserver:
--quorate-controllers=none, or QUORATE_CONTROLLERS=none in the environment.`,
		Example: `  # envtest
  ln -s $(command -v quorate) bin/kube-apiserver
  ln -s $(command -v quorate) bin/etcd
  KUBEBUILDER_ASSETS=$PWD/bin go test ./...`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch v := o.Version(); {
			case v == "true" || v == "raw":
				fmt.Fprintln(cmd.OutOrStdout(), "Kubernetes "+node.KubernetesVersion(build.Version))
				return nil
			case v != "" && !strings.HasPrefix(v, "v"):
				return fmt.Errorf("--version=%s: must be true, raw or vX.Y.Z-SUFFIX", v)
			}
			// Who reads our log may be gone before us, and there is something to remove then.
			signal.Ignore(syscall.SIGPIPE)
			syscall.Umask(0o077)
			defer collector.Start()()
			s := &settings{LogFormat: "text", LogLevel: o.Level().String()}
			if o.JSON() {
				s.LogFormat = "json"
			}
			log, watched := newLogger(s, os.Stderr)
			libraryLogs(log)
			ctx, stop := orHangup(cmd.Context())
			defer stop()
			return kubeapiserver.Run(ctx, o, kubeapiserver.Process{
				Version: build.Version, Log: log, LogBlocked: watched.blocked, Fatal: func(error) { os.Exit(exitCannotGoOn) },
			})
		},
	}
	c.Flags().SortFlags = true
	c.Flags().AddFlagSet(o.Flags())
	return c
}

// orHangup ends when the terminal does, too, unless that was asked to be ignored (nohup).
func orHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}
