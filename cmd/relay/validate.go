package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/config"
	"xdsrelay/internal/admin"
	"xdsrelay/internal/fanout/tokens"
	"xdsrelay/internal/store"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/upstream/filesource"
)

func newValidateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration and the files that it names",
		Long: `Check the configuration as serve would load it, with environment variables and flags.
The command compiles the rules and expressions. It reads the certificates, the tokens,
the keys of issuers in files, the rules file, and all files of an origin that is a
directory. It checks whether the relay can use the directory of the store. It creates
no file, opens no socket and contacts no origin.

It prints each fault as "file:line: key: reason" and exits with 1 if there is a fault.
With a fault, serve does not start and a reload changes nothing. There are two
exceptions: faults in the files of an origin, and certificates that have expired. serve
starts with them and logs them.

Warnings do not change the exit code. serve starts with them and logs them.

The command does not check whether another relay uses the directory of the store.
In that case serve does not start.`,
		Example: "  relay validate --config relay.yaml\n  RELAY_UPSTREAM_VARIANT=sotw relay validate --config relay.yaml -o json",
		Args:    noArgs,
	}
	file := addConfigFlags(cmd)
	format := addOutputFlag(cmd, terminal.FormatText, terminal.FormatJSON, terminal.FormatYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report, err := validate(cmd, *file)
		if err != nil {
			return err
		}
		err = terminal.Print(cmd.OutOrStdout(), *format, report, report.print)
		if err == nil && !report.Valid {
			err = errReported
		}
		return err
	}
	return cmd
}

// validation is the output of validate.
type validation struct {
	File     string        `json:"file" yaml:"file"`
	Valid    bool          `json:"valid" yaml:"valid"`
	Faults   config.Faults `json:"faults,omitempty" yaml:"faults,omitempty"`
	Warnings config.Faults `json:"warnings,omitempty" yaml:"warnings,omitempty"`
}

// validate makes all checks that need no socket.
func validate(cmd *cobra.Command, file string) (*validation, error) {
	v := &validation{File: file}
	cfg, err := config.Load(file, cmd.Flags())
	c, err := checked(cfg, err, nil)
	if err != nil && !errors.As(err, &v.Faults) {
		return nil, err
	}
	if cfg == nil {
		return v, nil
	}
	faults, missing := directoryFaults(cfg)
	expired, expiring := expiryFaults(cfg, time.Now())
	v.Faults = v.Faults.With(faults).With(expired)
	v.Warnings = slices.Concat(warnings(cfg, c), missing, storeWarnings(cfg), expiring)
	if c != nil {
		v.Warnings = append(v.Warnings, c.rules.Warnings()...)
	}
	// Err sorts.
	v.Valid = v.Faults.Err() == nil
	_ = v.Warnings.Err()
	return v, nil
}

// directoryFaults checks the files of origins that are directories. A directory that cannot be read
// or has no files is a warning, because it may come later. serve starts in each case, also with
// faulty files, logs the fault and looks again.
func directoryFaults(cfg *config.Config) (faults, warnings config.Faults) {
	for i := range cfg.Upstream.Origins {
		dir, ok := cfg.Upstream.Origins[i].Dir()
		if !ok {
			continue
		}
		key := fmt.Sprintf("upstream.origins[%d].address", i)
		is, err := os.Stat(dir)
		if err == nil && is.IsDir() {
			_, err = os.ReadDir(dir)
		}
		switch {
		case err != nil:
			warnings = append(warnings, cfg.Places.Fault(key, "%v: the origin is away until the directory can be read", err))
		case is.IsDir():
			// f.File is the origin's file; the key names the directory in the configuration.
			for _, f := range filesource.CheckDirectory(dir) {
				if errors.Is(f.Err, filesource.ErrNoFiles) {
					warnings = append(warnings, cfg.Places.Fault(key, "%s: %v: the origin is away until the directory has a file", dir, f.Err))
					continue
				}
				faults = append(faults, config.Fault{Pos: config.Pos{File: f.File}, Key: key, Reason: f.Err.Error()})
			}
		}
	}
	return faults, warnings
}

// storeWarnings warn of a store directory that cannot be used, or that other users may access.
// serve starts nevertheless, and creates a directory that does not exist.
func storeWarnings(cfg *config.Config) config.Faults {
	p := cfg.Store.Path
	if p == "" {
		return nil
	}
	may, err := store.Check(p)
	switch {
	case err != nil:
		return config.Faults{cfg.Places.Fault("store.path", "%v: the store is off until the directory can be used", err)}
	case may != "":
		return config.Faults{cfg.Places.Fault("store.path", "other users may %s %s; its mode should be 0700", may, p)}
	}
	return nil
}

// tokenFaults are the tokens, and the keys of tokens' issuers, that cannot be used.
func tokenFaults(cfg *config.Config) (faults config.Faults) {
	check := func(key, file string, read func(string) error) {
		if file == "" {
			return
		}
		if err := read(file); err != nil {
			faults = append(faults, cfg.Places.Fault(key, "%v", err))
		}
	}
	token := func(file string) error { _, err := tokens.ReadFile(file); return err }
	check("admin.token_file", cfg.Admin.TokenFile, func(file string) error { _, err := admin.ReadToken(file); return err })
	for _, l := range cfg.Downstream.Listen() {
		check(l.Key+".tokens.jwks_file", l.Tokens.JWKSFile, tokens.CheckKeys)
		check(l.Key+".tokens.jwks_token_file", l.Tokens.JWKSTokenFile, token)
	}
	for i, o := range cfg.Upstream.Origins {
		check(fmt.Sprintf("upstream.origins[%d].token_file", i), o.TokenFile, token)
	}
	return faults
}

func (v *validation) print(w io.Writer) {
	for _, f := range v.Faults {
		fmt.Fprintln(w, f.Text())
	}
	for _, f := range v.Warnings {
		f.Reason = "warning: " + f.Reason
		fmt.Fprintln(w, f.Text())
	}
	if v.Valid {
		fmt.Fprintf(w, "%s is valid\n", v.File)
	}
}
