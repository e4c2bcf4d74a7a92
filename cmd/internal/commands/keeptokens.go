package commands

import (
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/membership"
	"github.com/spf13/cobra"
)

// keepLongest is --keep-tokens without a time.
const keepLongest = "longest"

// keeping gives the command that removes a member the flag about its tokens.
func keeping(c *cobra.Command, keep *string) *cobra.Command {
	c.Long = `Removes a member. Its process ends by itself, and what its disk holds is refused
from then on, on all nodes: its certificates, and the tokens of service accounts
that it has signed. Clients that got their token through it have 401 until they
fetch another: a kubelet does that when most of a token's time is over, for
pods within the hour, and not because of a 401.

--keep-tokens is for planned removals. Its tokens hold until they expire, or for
the time that is given (24h: by then kubelets have fetched others). That trusts
the node: it has the key still, so who has its disk can make tokens that say to
be from before the removal. Do not use it for a node that may be in wrong hands.

More in docs/operations.md, "Remove a node".`
	c.Flags().StringVar(keep, "keep-tokens", "", "let the service account tokens that the member has signed hold, for a `time` (--keep-tokens=24h) or as long as they are valid; this trusts who has its disk")
	c.Flags().Lookup("keep-tokens").NoOptDefVal = keepLongest
	exact := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		for _, arg := range args {
			if _, err := time.ParseDuration(arg); err == nil && *keep == keepLongest && len(args) > 1 {
				return fmt.Errorf("unexpected argument %q; with a time, the flag is --keep-tokens=%s", arg, arg)
			}
		}
		return exact(c, args)
	}
	c.PreRunE = func(c *cobra.Command, _ []string) error { // before anybody is asked
		if c.Flags().Changed("keep-tokens") && *keep == "" { // a variable that is not set: it does not mean that tokens end
			return errors.New("--keep-tokens= has no time: say one, such as --keep-tokens=24h, or --keep-tokens alone: as long as the tokens are valid")
		}
		_, err := keepTokens(*keep)
		return err
	}
	return c
}

// keepTokens reads --keep-tokens.
func keepTokens(flag string) (membership.KeepTokens, error) {
	switch flag {
	case "":
		return membership.KeepTokens{}, nil
	case keepLongest:
		return membership.KeepTokens{Keep: true}, nil
	}
	d, err := time.ParseDuration(flag)
	if err != nil || d < time.Second || d > 1<<32*time.Second {
		return membership.KeepTokens{}, fmt.Errorf("--keep-tokens=%s: must be a time from 1s to 2^32 seconds, such as --keep-tokens=24h, or without one: as long as the tokens are valid", flag)
	}
	return membership.KeepTokens{Keep: true, For: d}, nil
}

// aboutTokens says what a removal means for tokens, "" if nothing changes.
func aboutTokens(tokens membership.KeepTokens) string {
	if tokens.Keep {
		return ""
	}
	return "The service account tokens that it has signed are refused: pods have new ones within the hour. See \"Remove a node\" in docs/operations.md.\n"
}
