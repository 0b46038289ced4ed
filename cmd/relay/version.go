package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"xdsrelay/internal/terminal"
)

// version is set by the linker, as the Makefile and the Dockerfile do: -X main.version=v1.2.3.
// Without it the version is that of the module.
var version string

func newVersionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the revision and the Go release",
		Example: "  relay version\n  relay version -o json",
		Args:    noArgs,
	}
	format := addOutputFlag(cmd, terminal.FormatText, terminal.FormatJSON, terminal.FormatYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := build()
		return terminal.Print(cmd.OutOrStdout(), *format, b, func(w io.Writer) { fmt.Fprintln(w, b) })
	}
	return cmd
}

// buildInfo describes the running binary.
type buildInfo struct {
	Version  string `json:"version" yaml:"version"`
	Revision string `json:"revision,omitempty" yaml:"revision,omitempty"`
	Time     string `json:"time,omitempty" yaml:"time,omitempty"` // of the revision
	Modified bool   `json:"modified,omitempty" yaml:"modified,omitempty"`
	Go       string `json:"go" yaml:"go"`
	Platform string `json:"platform" yaml:"platform"`
}

// build returns what the linker and the Go command recorded in the binary.
func build() buildInfo {
	info, _ := debug.ReadBuildInfo()
	return buildInfoOf(version, info)
}

// buildInfoOf prefers the linker's version to the module's. The module has a version if the binary
// was installed by go install MODULE@VERSION, or built in a checkout that the Go command can read.
// info may be nil.
func buildInfoOf(linked string, info *debug.BuildInfo) buildInfo {
	b := buildInfo{Version: linked, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		if info.Main.Version != "(devel)" {
			b.Version = cmp.Or(linked, info.Main.Version)
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.time":
				b.Time = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	b.Version = cmp.Or(b.Version, "dev")
	return b
}

func (b buildInfo) String() string {
	s := "relay " + b.Version
	if b.Revision != "" {
		s += ", revision " + b.Revision[:min(12, len(b.Revision))]
		if b.Modified {
			s += " with changes"
		}
	}
	return s + ", " + b.Go + ", " + b.Platform
}
