package main

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/xds"
)

// completionTime bounds a request for completion, completionNames the names that it asks for.
const (
	completionTime  = 2 * time.Second
	completionNames = "50"
)

// completeWith completes a flag with the result of names, never with files. The caller has defined
// the flag.
func completeWith(cmd *cobra.Command, flag string, names func(typed string) []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, completeFrom(names))
}

// completeFrom completes with the result of names, never with files. It leaves out names with
// control characters, which cannot be typed and which a terminal would interpret.
func completeFrom(names func(typed string) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) (out []string, _ cobra.ShellCompDirective) {
		for _, name := range names(typed) {
			if name != "" && name == terminal.Visible(name) {
				out = append(out, name)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFirst completes the first argument of a command, and no others.
func completeFirst(names func(typed string) []string) cobra.CompletionFunc {
	first := completeFrom(names)
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return first(cmd, args, typed)
	}
}

// completeNothing turns completion off for flags that take a number, a time or an address.
func completeNothing(cmd *cobra.Command, flags ...string) {
	for _, f := range flags {
		completeWith(cmd, f, func(string) []string { return nil })
	}
}

func completeTypes(cmd *cobra.Command) {
	completeWith(cmd, "type", func(string) (out []string) {
		for _, t := range xds.Types() {
			out = append(out, t.Short)
		}
		return out
	})
}

// completeKeys completes --key with keys of the running relay: those that contain the typed text,
// or the first few.
func completeKeys(cmd *cobra.Command, flags *runningFlags) {
	completeWith(cmd, "key", func(typed string) []string {
		if typed != "" {
			found, _ := ask[foundNames](flags, "/find", url.Values{"text": {typed}})
			return found.Keys
		}
		return distinct(flags, "/keys", nil, func(of *named) string { return of.Key })
	})
}

// completeNodes completes --node in the same way.
func completeNodes(cmd *cobra.Command, flags *runningFlags) {
	completeWith(cmd, "node", nodeNames(flags))
}

// nodeNames returns a function that finds ids of nodes by a part.
func nodeNames(flags *runningFlags) func(typed string) []string {
	return func(typed string) (out []string) {
		if typed != "" {
			found, _ := ask[foundNames](flags, "/find", url.Values{"text": {typed}})
			for _, n := range found.Nodes {
				out = append(out, n.Node)
			}
			return out
		}
		return distinct(flags, "/clients", nil, func(of *named) string { return of.Node })
	}
}

// completeResources completes --name with the resources of --key and --type.
func completeResources(cmd *cobra.Command, flags *runningFlags, key *string, typ *typeFlag) {
	completeWith(cmd, "name", func(typed string) []string {
		if *key == "" {
			return nil
		}
		q := url.Values{"key": {*key}}
		if *typ != "" {
			q.Set("type", string(*typ))
		}
		if typed != "" {
			q.Set("find", typed)
		}
		return distinct(flags, "/resources", q, func(of *named) string { return of.Name })
	})
}

// completeVersions completes --version with the versions of --key and --type that the relay
// remembers, the newest first.
func completeVersions(cmd *cobra.Command, flags *runningFlags, key *string, typ *typeFlag) {
	completeWith(cmd, "version", func(string) (out []string) {
		if *key == "" {
			return nil
		}
		k, _ := ask[keystatus.Key](flags, "/keys/"+url.PathEscape(*key), nil)
		for _, t := range k.Types {
			for _, v := range t.Versions {
				if *typ == "" || string(*typ) == t.Type {
					out = append(out, cmp.Or(v.OriginVersion, v.Version))
				}
			}
		}
		return out
	})
}

// named is an item of a list, foundNames an answer of /find.
type named struct{ Key, Node, Name string }

type foundNames struct {
	Keys  []string
	Nodes []struct{ Node string }
}

// ask sends a request to the running relay. It returns no error, since the shell would print it
// into the command line that the user types.
func ask[T any](flags *runningFlags, path string, q url.Values) (answer T, ok bool) {
	c, err := flags.client()
	if err != nil {
		return answer, false
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(flags.cmd.Context(), completionTime)
	defer cancel()
	err = c.Get(ctx, path, q, &answer)
	return answer, err == nil
}

// distinct returns the first names of a list, without repetitions.
func distinct(flags *runningFlags, path string, q url.Values, name func(*named) string) (out []string) {
	of := url.Values{"limit": {completionNames}}
	maps.Copy(of, q)
	page, _ := ask[struct{ Items []named }](flags, path, of)
	seen := map[string]bool{}
	for i := range page.Items {
		if n := name(&page.Items[i]); !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}
