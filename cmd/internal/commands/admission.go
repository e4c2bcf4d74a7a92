package commands

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/node"
	"github.com/spf13/cobra"
)

func admissionCommand() *cobra.Command {
	var a access
	c := cli.Group(&cobra.Command{Use: "admission", Short: "Show webhooks and policies at work, and suspend one that blocks the cluster"})
	a.flags(c)
	suspend, resume := admissionSuspendCommand(&a), admissionResumeCommand(&a)
	changes(suspend, resume)
	c.AddCommand(admissionListCommand(&a), suspend, resume)
	return c
}

func admissionListCommand(a *access) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List each webhook and policy: calls, rejections, failures and times on every node", Args: cli.NoArguments,
		Long: `Asks every node of the kubeconfig's contexts. What is counted is since the start of the node; FAILURES are
calls without an answer, or with one that is none, and OPEN those of them that let the write through.

Policies are counted otherwise. CALLS of a validating policy are the checks that did not just admit a write, one for
each binding, parameter and action (deny, warn, audit); of a mutating one each mutation that was made or failed.
REJECTED are those with deny, and mutations that failed; FAILURES those with an error that let the write through, or
that did not compile or cost too much. What is refused because there is no parameter, or because a policy cannot be
used as it is, is in no column.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			answers := membership.AskEach[node.AdmissionReport](cmd.Context(), client, "admission")
			var reports []node.AdmissionReport
			var errs []error
			for _, x := range answers {
				if x.Err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", x.Server, x.Err))
					continue
				}
				if !slices.ContainsFunc(reports, func(r node.AdmissionReport) bool { return r.Node == x.Value.Node }) {
					reports = append(reports, x.Value) // two contexts may have the same server
				}
			}
			if len(reports) == 0 {
				return errors.Join(errs...)
			}
			slices.SortFunc(reports, func(a, b node.AdmissionReport) int { return strings.Compare(a.Node, b.Node) })
			if err := a.print(cmd.OutOrStdout(), reports, func(w *tabwriter.Writer) { admissionTable(w, reports) }); err != nil {
				return err
			}
			for _, err := range errs {
				fmt.Fprintf(cmd.ErrOrStderr(), "not asked: %v\n", err)
			}
			return nil
		},
	}
}

func admissionTable(w *tabwriter.Writer, reports []node.AdmissionReport) {
	fmt.Fprintln(w, "RULE\tWEBHOOK\tFAILS\tTIMEOUT\tNODE\tCALLS\tREJECTED\tFAILURES\tOPEN\tMEAN\tP99")
	rows := 0
	for i := range reports[0].Rules {
		first := &reports[0].Rules[i]
		for _, r := range reports {
			at := slices.IndexFunc(r.Rules, func(x node.AdmissionRule) bool {
				return x.Resource == first.Resource && x.Configuration == first.Configuration && x.Webhook == first.Webhook
			})
			if at < 0 {
				continue // it has just come, or gone
			}
			rows++
			x := &r.Rules[at]
			timeout := "-"
			if x.TimeoutSeconds > 0 {
				timeout = fmt.Sprintf("%ds", x.TimeoutSeconds)
			}
			webhook := x.Webhook
			if webhook == "" {
				webhook = "-"
			}
			fails := map[string]string{"Fail": "closed", "Ignore": "open"}[x.FailurePolicy]
			if fails == "" {
				fails = x.FailurePolicy
			}
			fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%.1f ms\t%.0f ms\n", x.Resource, x.Configuration, webhook,
				fails, timeout, r.Node, x.Calls, x.Rejections, x.Failures, x.FailedOpen, x.MeanMS, x.P99MS)
		}
	}
	if rows == 0 {
		fmt.Fprintln(w, "(there are no webhook configurations and no admission policies)")
	}
	for _, s := range reports[0].Suspensions {
		fmt.Fprintf(w, "\n%s\n", s)
	}
}

func admissionSuspendCommand(a *access) *cobra.Command {
	var duration time.Duration
	c := &cobra.Command{
		Use: "suspend NAME", Short: "Have no node ask a webhook configuration or policy for a time", Args: cli.Exactly("NAME"),
		Long: `For a cluster that cannot be mended because a webhook with failurePolicy Fail is dead, or a policy refuses what
would mend it. NAME is that of the configuration or policy, or RESOURCE/NAME if several have it. It is in force on
every node when the command returns, and ends by itself, or with the object: another one that gets its name is asked.
Until then 'quorate status' and a warning on each write show it. Only members of system:masters may do this; the audit log has it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if duration < time.Second || duration > suspension.Max {
				return fmt.Errorf("--for %s: must be from 1s to %s", duration, suspension.Max)
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			resource, name := suspended(args[0])
			s, err := membership.AskAgain[suspension.Suspension](cmd.Context(), client, http.MethodPost, "admission/suspensions",
				node.SuspensionRequest{Resource: resource, Name: name, Seconds: int64((duration + time.Second - 1) / time.Second)})
			if err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), s, func(w *tabwriter.Writer) {
				fmt.Fprintf(w, "%s\nend it earlier with: quorate admission resume %s\n", &s, s.Name)
			})
		},
	}
	c.Flags().DurationVar(&duration, "for", 10*time.Minute, "how long it is suspended")
	return c
}

func admissionResumeCommand(a *access) *cobra.Command {
	return &cobra.Command{
		Use: "resume NAME", Short: "End a suspension", Args: cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			resource, name := suspended(args[0])
			if resource == "" {
				resource = "-"
			}
			s, err := membership.Ask[suspension.Suspension](cmd.Context(), client, http.MethodDelete, "admission/suspensions/"+resource+"/"+url.PathEscape(name), nil)
			if errors.Is(err, membership.ErrUnknownOutcome) {
				return fmt.Errorf("%w; run it again: that is safe, and says that it is not suspended if it has been ended", err)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s/%s is asked again\n", s.Resource, s.Name)
			return nil
		},
	}
}

// suspended reads NAME or RESOURCE/NAME; the resource may be in the singular.
func suspended(arg string) (resource, name string) {
	resource, name, ok := strings.Cut(arg, "/")
	if !ok {
		return "", arg
	}
	for _, kind := range suspension.Kinds {
		if resource+"s" == kind || strings.TrimSuffix(resource, "y")+"ies" == kind {
			return kind, name
		}
	}
	return resource, name
}
