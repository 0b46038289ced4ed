// Command relay is an xDS relay: it stands between control planes and a fleet
// of Envoys and gRPC processes.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"xdsrelay/config"
)

func main() {
	logGRPC()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the program with its arguments and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRootCmd()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletionCmd(root)
	cmd, err := root.ExecuteC()
	var faults config.Faults
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, errReported):
	case errors.As(err, &faults):
		// One fault a line, as validate prints them, so that editors find the places.
		for _, f := range faults {
			fmt.Fprintln(stderr, faultText(f))
		}
	default:
		fmt.Fprintln(stderr, "relay:", strings.TrimSpace(err.Error()))
		if misused(err) {
			fmt.Fprintf(stderr, "%s --help says what there is\n", cmd.CommandPath())
		}
	}
	return 1
}

// usageError is an unknown flag, or a flag's wrong value.
type usageError struct{ error }

// misused reports whether the command line is wrong. cobra has no type for its errors about
// commands.
func misused(err error) bool {
	return errors.As(err, new(usageError)) || strings.HasPrefix(err.Error(), "unknown command ")
}

// errReported says that the command's output already has the fault.
var errReported = errors.New("reported")

// exitError is errReported with an exit code of its own.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:     "relay",
		Version: build().Version, // without it cobra adds no --version
		Short:   "An xDS relay between control planes and a fleet",
		Long: `relay stands between xDS control planes and a fleet of Envoys and gRPC
processes. It groups nodes by aggregation rules, subscribes at the origin once
for each group, and passes changes on to every client of the group.

Commands that read a configuration take each of its keys as a flag too, as in
--upstream.linger=5s, and from the environment, as in RELAY_UPSTREAM_LINGER=5s;
--help lists the flags that are needed most.`,
		Example: "  relay demo\n  relay serve --config relay.yaml\n  relay validate --config relay.yaml",
		// run prints the errors, and a usage text would hide them.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate(build().String() + "\n") // the same text as relay version
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	// In the order in which users need them.
	root.AddCommand(
		newServeCmd(),
		newDemoCmd(),
		newValidateCmd(),
		newExplainCmd(),
		newStatusCmd(),
		newNacksCmd(),
		newDiffCmd(),
		newDumpCmd(),
		newWaitCmd(),
		newVersionCmd(),
	)
	return root
}

// addCompletionCmd adds `relay completion`. It is called after root.SetOut, because cobra takes
// root's output now. An unknown shell prints the help, which is cobra's rule.
func addCompletionCmd(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// addConfigFlags adds --config and a flag for each key of the file.
func addConfigFlags(cmd *cobra.Command) *string {
	file := cmd.Flags().StringP("config", "c", config.DefaultFile, "configuration file")
	config.AddFlags(cmd.Flags())
	return file
}
