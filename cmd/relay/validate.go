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
	"xdsrelay/internal/store"
	"xdsrelay/internal/upstream/filesource"
)

func newValidateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check configuration and rules without starting",
		Long: `validate reads the configuration as serve would, with environment and flags over
it, compiles its rules and expressions, reads the certificates, token and rules
that it names, and every file of an origin that is a directory, and looks whether
the store's directory can be used. It makes nothing, opens no socket and asks no
origin. It prints each fault as "file:line: key: reason" and
exits with 1 if there is any.

A fault is what serve would not start with and a reload not take, with the same
words, and what is wrong with the files of an origin: of those serve would serve
nothing until they are mended, and says so in its log. Warnings, such as of a
directory that cannot be used yet, do not change the exit code: serve starts, and
its log has them. Whether another relay uses the store's directory is seen only by
serve, which does not start then.`,
		Example: "  relay validate --config relay.yaml\n  RELAY_UPSTREAM_VARIANT=sotw relay validate --config relay.yaml -o json",
		Args:    cobra.NoArgs,
	}
	file := addConfigFlags(cmd)
	format := addOutputFlag(cmd, formatText, formatJSON, formatYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report, err := validate(cmd, *file)
		if err != nil {
			return err
		}
		if *format == formatText {
			report.print(cmd.OutOrStdout())
		} else if err := printData(cmd.OutOrStdout(), *format, report); err != nil {
			return err
		}
		if !report.Valid {
			return errReported
		}
		return nil
	}
	return cmd
}

// validation is what validate prints.
type validation struct {
	File     string        `json:"file" yaml:"file"`
	Valid    bool          `json:"valid" yaml:"valid"`
	Faults   config.Faults `json:"faults,omitempty" yaml:"faults,omitempty"`
	Warnings config.Faults `json:"warnings,omitempty" yaml:"warnings,omitempty"`
}

// validate checks all that can be checked without a socket.
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
	v.Faults = v.Faults.With(faults)
	v.Warnings = slices.Concat(warnings(cfg, c), missing, storeWarnings(cfg), certificateWarnings(cfg, time.Now()))
	if c != nil {
		v.Warnings = append(v.Warnings, c.rules.Warnings()...)
	}
	// Err sorts.
	v.Valid = v.Faults.Err() == nil
	_ = v.Warnings.Err()
	return v, nil
}

// directoryFaults are those of the files that origins would serve which are directories.
// One that cannot be read, or has none, is an origin that is away, which may come later: serve
// starts, says so, and looks again; it does as well where files have faults.
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
			warnings = append(warnings, cfg.Places.Fault(key, "%v: until it can be read, the origin is away", err))
		case is.IsDir():
			// At the place in the origin's file, not at that where it is named.
			for _, f := range filesource.CheckDirectory(dir) {
				if errors.Is(f.Err, filesource.ErrNoFiles) {
					warnings = append(warnings, cfg.Places.Fault(key, "%s: %v: until there is one, the origin is away", dir, f.Err))
					continue
				}
				faults = append(faults, config.Fault{Pos: config.Pos{File: f.File}, Key: key, Reason: f.Err.Error()})
			}
		}
	}
	return faults, warnings
}

// storeWarnings say that the directory of the last known good cannot be used, or that others
// have access to it. serve starts all the same, and creates a directory that does not exist.
func storeWarnings(cfg *config.Config) config.Faults {
	p := cfg.Store.Path
	if p == "" {
		return nil
	}
	may, err := store.Check(p)
	switch {
	case err != nil:
		return config.Faults{cfg.Places.Fault("store.path", "%v: until it can be used, nothing is stored and nothing stored is served", err)}
	case may != "":
		return config.Faults{cfg.Places.Fault("store.path", "others may %s %s, which should be of mode 0700", may, p)}
	}
	return nil
}

// tokenFaults is that of a token that cannot be used.
func tokenFaults(cfg *config.Config) (faults config.Faults) {
	if f := cfg.Admin.TokenFile; f != "" {
		if _, err := admin.ReadToken(f); err != nil {
			faults = append(faults, cfg.Places.Fault("admin.token_file", "%v", err))
		}
	}
	return faults
}

func (v *validation) print(w io.Writer) {
	for _, f := range v.Faults {
		fmt.Fprintln(w, faultText(f))
	}
	for _, f := range v.Warnings {
		f.Reason = "warning: " + f.Reason
		fmt.Fprintln(w, faultText(f))
	}
	if v.Valid {
		fmt.Fprintf(w, "%s is valid\n", v.File)
	}
}

// faultText is "file:line: key: reason", in whatever says what is wrong with a
// configuration. The column comes last, so that what reads the line need not know of it.
func faultText(f config.Fault) string {
	column := ""
	if f.Line > 0 {
		if f.Column > 0 {
			column = fmt.Sprintf(" (column %d)", f.Column)
		}
		f.File, f.Pos.Line, f.Column = fmt.Sprintf("%s:%d", f.File, f.Line), 0, 0
	}
	return f.Error() + column
}
