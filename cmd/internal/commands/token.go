package commands

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/membership"
	"github.com/spf13/cobra"
)

func tokenCommand() *cobra.Command {
	var a access
	c := cli.Group(&cobra.Command{Use: "token", Short: "Make and revoke tokens: of nodes that join the cluster, and of workers that join by kubeadm"})
	a.flags(c)
	create, del := tokenCreateCommand(&a), tokenDeleteCommand(&a)
	list := tokenListCommand(&a)
	changes(create, list, del)
	c.AddCommand(create, list, del)
	return c
}

func tokenCreateCommand(a *access) *cobra.Command {
	var ttl time.Duration
	var req membership.TokenRequest
	var worker bool
	c := &cobra.Command{
		Use: "create", Short: "Make a join token and print it; its secret is shown this once", Args: cli.NoArguments,
		Long: "Make a join token and print it; its secret is shown this once. With --worker it is a bootstrap token, by which machines that\n" +
			"run Pods join, and the kubeadm join command for them is printed.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if worker && cmd.Flags().Changed("uses") {
				return errors.New("--uses is for nodes; any number of machines may use the token that --worker makes, until it ends or is deleted")
			}
			if ttl < time.Second || ttl > membership.MaxTokenTTL {
				return fmt.Errorf("--ttl %s: must be from 1s to %dh", ttl, membership.MaxTokenTTL/time.Hour)
			}
			if req.Uses < 0 || req.Uses > membership.MaxTokenUses {
				return fmt.Errorf("--uses %d: must be from 1 to %d, or 0 for any number", req.Uses, membership.MaxTokenUses)
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			if worker {
				t, err := createWorkerToken(cmd.Context(), client, ttl, req.Note)
				if err != nil {
					return err
				}
				if a.output == "json" {
					return a.print(cmd.OutOrStdout(), t, nil)
				}
				fmt.Fprintln(cmd.OutOrStdout(), t.Command)
				fmt.Fprintf(cmd.ErrOrStderr(), "valid until %s, for any number of machines\n", t.Expires.Local().Format(time.DateTime))
				return nil
			}
			req.TTLSeconds = int64(ttl / time.Second)
			t, err := client.CreateToken(cmd.Context(), req)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.print(cmd.OutOrStdout(), t, nil)
			}
			fmt.Fprintln(cmd.OutOrStdout(), t.Token)
			fmt.Fprintf(cmd.ErrOrStderr(), "valid until %s; on the new node:\n  quorate node --join-token @FILE --join %s    # the API's port of any member\n",
				t.Info.Expires.Local().Format(time.DateTime), client.Server())
			return nil
		},
	}
	c.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token works")
	c.Flags().IntVar(&req.Uses, "uses", 1, "how many nodes may use it; 0 for any number")
	c.Flags().BoolVar(&worker, "worker", false, "for machines that run Pods: make a bootstrap token and print the kubeadm join command with it")
	c.Flags().StringVar(&req.Note, "note", "", "what it is for")
	return c
}

func tokenListCommand(a *access) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tokens, without their secrets", Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			tokens, err := client.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			workers, failed := workerTokens(cmd.Context(), client)
			if errors.Is(failed, membership.ErrForbidden) { // a user who may list join tokens need not be allowed to read Secrets
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", failed)
				failed = nil
			}
			tokens = append(tokens, workers...)
			err = a.print(cmd.OutOrStdout(), tokens, func(w *tabwriter.Writer) {
				fmt.Fprintln(w, "ID\tFOR\tSTATE\tEXPIRES\tUSED\tNOTE")
				for _, t := range tokens {
					kind, used, expires := "node", fmt.Sprintf("%d/%s", t.Used, uses(t.Uses)), "never"
					if t.Worker {
						kind, used = "worker", "-"
					}
					if !t.Expires.IsZero() {
						expires = t.Expires.Local().Format(time.DateTime)
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, kind, t.State, expires, used, t.Note)
				}
			})
			return cmp.Or(failed, err) // what could be listed is printed
		},
	}
}

func tokenDeleteCommand(a *access) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: "Revoke a token", Args: cli.Exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			if workerID.MatchString(args[0]) {
				if err := deleteWorkerToken(cmd.Context(), client, args[0]); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "bootstrap token %s is revoked\n", args[0])
				return nil
			}
			if err := client.DeleteToken(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "join token %s is revoked\n", args[0])
			return nil
		},
	}
}

// uses is how many uses a join token allows.
func uses(n int) string {
	if n == 0 {
		return "any"
	}
	return strconv.Itoa(n)
}
