package validation

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"xdsrelay/config"
)

// Report is the output of validate.
type Report struct {
	File     string        `json:"file" yaml:"file"`
	Valid    bool          `json:"valid" yaml:"valid"`
	Faults   config.Faults `json:"faults,omitempty" yaml:"faults,omitempty"`
	Warnings config.Faults `json:"warnings,omitempty" yaml:"warnings,omitempty"`
}

// ReportOn makes all checks that need no socket. cfg and err are what config.Load returned for the
// file.
func ReportOn(file string, cfg *config.Config, err error) (*Report, error) {
	v := &Report{File: file}
	c, err := Check(cfg, err, nil)
	if err != nil && !errors.As(err, &v.Faults) {
		return nil, err
	}
	if cfg == nil {
		return v, nil
	}
	faults, missing := directoryFaults(cfg)
	expired, expiring := expiryFaults(cfg, time.Now())
	v.Faults = v.Faults.With(faults).With(expired)
	v.Warnings = slices.Concat(Warnings(cfg, c), missing, storeWarnings(cfg), expiring)
	if c != nil {
		v.Warnings = append(v.Warnings, c.Rules.Warnings()...)
	}
	// Err sorts.
	v.Valid = v.Faults.Err() == nil
	_ = v.Warnings.Err()
	return v, nil
}

// Print writes a line for each fault and warning.
func (v *Report) Print(w io.Writer) {
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
