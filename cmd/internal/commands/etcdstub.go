package commands

import (
	"fmt"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/kubeapiserver"
	"github.com/spf13/cobra"
)

func etcdStubCommand() *cobra.Command {
	s := &kubeapiserver.Stub{}
	version := false
	c := &cobra.Command{
		Use: "etcd-stub", Short: "Stand in for etcd, for tools that insist on starting one", Args: cli.NoArguments,
		Long: `Stands where a tool starts etcd beside kube-apiserver: it answers /health and /version,
says of all else that it is a stub. A 'quorate kube-apiserver' that has its address in
--etcd-servers keeps its data in its --data-dir, where etcd's would be. It takes etcd's
flags; those that are not listed change nothing. A link named etcd to this program does
the same.`,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "etcd Version: %s\nGit SHA: %s\nGo Version: %s\nGo OS/Arch: %s/%s\n(a stub of quorate %s)\n",
					kubeapiserver.EtcdVersion, build.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.TrimSpace(build.Version))
				return err
			}
			signal.Ignore(syscall.SIGPIPE)
			ctx, stop := orHangup(cmd.Context())
			defer stop()
			return s.Run(ctx)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&s.ClientURLs, "listen-client-urls", []string{"http://localhost:2379"}, "where to listen")
	f.StringSliceVar(&s.MetricsURLs, "listen-metrics-urls", nil, "where to serve health alone")
	f.StringVar(&s.CertFile, "cert-file", "", "certificate for https")
	f.StringVar(&s.KeyFile, "key-file", "", "its key")
	f.StringVar(&s.DataDir, "data-dir", "", "where a kube-apiserver of quorate with this stub in its --etcd-servers keeps its data")
	f.Bool("unsafe-no-fsync", false, "there is nothing to sync")
	f.BoolVar(&version, "version", false, "print the version")
	return c
}
