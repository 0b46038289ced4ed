// Command relay is an xDS relay: it stands between control planes and a fleet
// of Envoys and gRPC processes.
package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xdsrelay/config"
	"xdsrelay/internal/admin/grpcadmin"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/telemetry/logging"
	"xdsrelay/internal/terminal"
)

func main() {
	logging.CaptureLibraries()
	grpcadmin.CountForChannelz(false) // relay serve may turn it on
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the program with its arguments and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	out := &terminal.Output{Writer: stdout}
	code := execute(args, out, stderr)
	if out.Err != nil && code == 0 {
		fmt.Fprintln(stderr, "relay: output:", out.Err)
		return 1
	}
	return code
}

func execute(args []string, stdout, stderr io.Writer) int {
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
	case errors.As(err, &faults):
		// One fault a line, as validate prints them, so that editors find the places.
		for _, f := range faults {
			fmt.Fprintln(stderr, f.Text())
		}
	default:
		fmt.Fprintln(stderr, "relay:", strings.TrimSpace(err.Error()))
		if misused(err) {
			fmt.Fprintf(stderr, "run \"%s --help\" for usage\n", cmd.CommandPath())
		}
	}
	return 1
}

// usageError is an unknown flag, a flag's wrong value, or a wrong argument.
type usageError struct{ error }

func usageErrorf(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// misused reports whether the command line is wrong. cobra has no type for its errors about
// commands and missing flags.
func misused(err error) bool {
	text := err.Error()
	return errors.As(err, new(usageError)) || strings.HasPrefix(text, "unknown command ") || strings.HasPrefix(text, "required flag(s) ")
}

// flagKinds are the values of pflag's types, in the words of the configuration's errors.
var flagKinds = map[string]string{"bool": "true or false", "int": "an integer", "duration": "a duration such as 30s"}

// flagError replaces pflag's error about a wrong value, which contains the error of a Go function. It
// suggests a flag instead of an unknown one.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		known := map[string]int{}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = 0 })
		if near := spelling.Nearest(unknown.GetSpecifiedName(), maps.Keys(known)); near != "" {
			return usageErrorf("%w; did you mean --%s?", err, near)
		}
	}
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		if kind, ok := flagKinds[wrong.GetFlag().Value.Type()]; ok {
			return usageErrorf("--%s: must be %s, but is %q", wrong.GetFlag().Name, kind, wrong.GetValue())
		}
	}
	return usageError{err}
}

// noArgs is for commands without arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%s: takes no arguments, but has %q", cmd.Name(), args[0])
	}
	return nil
}

// exitError is the exit code of a command whose output already has the fault.
type exitError int

// errReported is the exitError of most commands.
const errReported = exitError(1)

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// The help lists commands in the order of newRootCmd.
func init() { cobra.EnableCommandSorting = false }

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:     "relay",
		Version: build().Version, // without it cobra adds no --version
		Short:   "An xDS relay between control planes and their clients",
		Long: `relay is a proxy between xDS control planes (the origins) and Envoy and gRPC clients.
Aggregation rules give each node a key. The relay subscribes at the origin once for
each key and sends the resources to all clients with this key.

Commands about a running relay ask it at its admin address. This is --admin, or else
admin.address in the file of --config. If neither flag is given and config/relay.yaml
does not exist, it is 127.0.0.1:19000.`,
		Example: "  relay demo\n  relay serve --config relay.yaml\n  relay validate --config relay.yaml",
		// run prints the errors, and a usage text would hide them.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate(build().String() + "\n") // the same text as relay version
	root.SetFlagErrorFunc(flagError)
	// In the order in which users need them.
	root.AddCommand(
		newServeCmd(),
		newDemoCmd(),
		newValidateCmd(),
		newExplainCmd(),
		newStatusCmd(),
		newOriginsCmd(),
		newKeysCmd(),
		newRulesCmd(),
		newMembersCmd(),
		newNacksCmd(),
		newDiffCmd(),
		newDumpCmd(),
		newWaitCmd(),
		newReloadCmd(),
		newSimulateCmd(),
		newHealthCmd(),
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

// addConfigFlags adds --config and a flag for each configuration key. The help mentions these flags
// in one line after the flags of the command.
func addConfigFlags(cmd *cobra.Command) *string {
	file := cmd.Flags().StringP("config", "c", config.DefaultFile, "configuration file")
	config.AddFlags(cmd.Flags())
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		// Not before, because shells do not complete hidden flags.
		cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = f.Hidden || f.Usage == "" })
		help(cmd, args)
		fmt.Fprintln(cmd.OutOrStdout(), "\nEach configuration key is also a flag, such as --upstream.variant=sotw: see docs/configuration.md.")
	})
	return file
}
