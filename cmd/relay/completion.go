package main

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/xds"
)

// What completion asks a running relay for: not for long, and not for much.
const (
	completionTime  = 2 * time.Second
	completionNames = "50"
)

// completeKeys completes --key with those of the running relay.
func completeKeys(cmd *cobra.Command, flags *runningFlags) {
	complete(cmd, "key", flags, "/keys", func(of *named) string { return of.Key }, func(f *foundNames) []string { return f.Keys })
}

// completeNodes completes --node.
func completeNodes(cmd *cobra.Command, flags *runningFlags) {
	complete(cmd, "node", flags, "/clients", func(of *named) string { return of.Node }, func(f *foundNames) (out []string) {
		for _, n := range f.Nodes {
			out = append(out, n.Node)
		}
		return out
	})
}

// completeTypes completes --type.
func completeTypes(cmd *cobra.Command) {
	// The flag exists: the caller has made it.
	_ = cmd.RegisterFlagCompletionFunc("type", func(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
		for _, t := range xds.Types() {
			out = append(out, t.Short)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
}

// named is an item of /keys or /clients, foundNames what /find answers.
type named struct{ Key, Node string }

type foundNames struct {
	Keys  []string
	Nodes []struct{ Node string }
}

// complete completes a flag: the first few of a list, or what /find finds once
// something is typed. Whatever goes wrong, there is nothing to choose from: whoever
// types wants no error in their line.
func complete(cmd *cobra.Command, flag string, flags *runningFlags, path string, name func(*named) string, find func(*foundNames) []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) (out []string, _ cobra.ShellCompDirective) {
		c, err := flags.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.close()
		ctx, cancel := context.WithTimeout(commandContext(cmd), completionTime)
		defer cancel()
		if typed != "" {
			var found foundNames
			if c.get(ctx, "/find", url.Values{"text": {typed}}, &found) != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return find(&found), cobra.ShellCompDirectiveNoFileComp
		}
		var page struct{ Items []json.RawMessage }
		if c.get(ctx, path, url.Values{"limit": {completionNames}}, &page) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		seen := map[string]bool{"": true}
		for _, item := range page.Items {
			var of named
			if json.Unmarshal(item, &of) == nil && !seen[name(&of)] {
				seen[name(&of)] = true
				out = append(out, name(&of))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
}
