//go:build linux

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// spread is a median with its interval. The interval contains the true median with 95 % confidence,
// whatever the distribution. With less than six rounds it goes from the smallest value to the
// largest.
type spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		median = (v[mid-1] + v[mid]) / 2
	}
	skip := medianRank(len(v))
	return spread{Median: median, Low: v[skip], High: v[len(v)-1-skip]}
}

// medianRank is how many of n sorted values may be left out at either end, so that the rest
// contains the median with 95 % confidence. The probability that so few are below the median is at
// most 2.5 %, as for n coins.
func medianRank(n int) int {
	below, term := 0.0, math.Pow(0.5, float64(n))
	for k := range n / 2 {
		if below += term; below > 0.025 {
			return max(k-1, 0)
		}
		term *= float64(n-k) / float64(k+1)
	}
	return max(n/2-1, 0)
}

// report is the result of a run, and the content of the JSON.
type report struct {
	Case       string            `json:"case,omitempty"`
	Command    string            `json:"command"`
	Time       time.Time         `json:"time"`
	Machine    machine           `json:"machine"`
	Versions   map[string]string `json:"versions"`
	Load       load              `json:"load"`
	Rounds     int               `json:"rounds"`
	Contenders []result          `json:"contenders,omitempty"`
	Study      *study            `json:"study,omitempty"`
}

type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
}

// result is a contender's result. Ratios are computed per round, between two contenders that ran
// shortly after each other. Then their median is taken.
type result struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Samples []sample `json:"samples"`

	ElapsedMS           spread  `json:"elapsed_ms"`
	LatencyMS           spread  `json:"latency_ms"`
	CPUMS               spread  `json:"cpu_ms"`
	CPUPerSendUS        float64 `json:"cpu_per_send_us"`
	AllocPerSend        spread  `json:"allocated_per_send"`
	ResidentMB          spread  `json:"resident_mb"`
	ElapsedToRaw        *spread `json:"elapsed_to_raw,omitempty"`
	CPUToRaw            *spread `json:"cpu_to_raw,omitempty"`
	LessCPUThanSnapshot *spread `json:"less_cpu_than_snapshot_cache,omitempty"`
	LessCPUThanLinear   *spread `json:"less_cpu_than_linear_cache,omitempty"`
	ElapsedToBare       *spread `json:"elapsed_to_bare,omitempty"`
	CPUToBare           *spread `json:"cpu_to_bare,omitempty"`
	ElapsedToOther      *spread `json:"elapsed_to_other,omitempty"`
	CPUToOther          *spread `json:"cpu_to_other,omitempty"`
}

func newReport(o *options, samples map[string][]sample, args []string) report {
	r := report{
		Command: strings.Join(args, " "), Time: time.Now().UTC().Truncate(time.Second),
		Machine: thisMachine(), Versions: versions(), Load: o.load, Rounds: o.rounds,
	}
	if r.Load.TLS != nil {
		r.Load.TLS = new(secured) // its files are deleted
	}
	raw, bare, other := samples[nameRaw], samples[nameBare], samples[nameOther]
	for _, e := range o.entries() {
		s := samples[e.name]
		if len(s) == 0 {
			continue
		}
		res := result{
			Name: e.name, What: e.what, Samples: s,
			ElapsedMS:    of(s, elapsed, 1e-6),
			LatencyMS:    of(s, latency, 1e-6),
			CPUMS:        of(s, cpuTime, 1e-6),
			AllocPerSend: of(s, func(s sample) float64 { return s.Allocated }, 1),
			ResidentMB:   of(s, func(s sample) float64 { return float64(s.Resident) }, 1e-6),

			ElapsedToRaw:        ratio(s, raw, elapsed),
			CPUToRaw:            ratio(s, raw, cpuTime),
			ElapsedToBare:       ratio(s, bare, elapsed),
			CPUToBare:           ratio(s, bare, cpuTime),
			ElapsedToOther:      ratio(s, other, elapsed),
			CPUToOther:          ratio(s, other, cpuTime),
			LessCPUThanSnapshot: ratio(samples[nameSnapshot], s, cpuTime),
			LessCPUThanLinear:   ratio(samples[nameLinear], s, cpuTime),
		}
		res.CPUPerSendUS = res.CPUMS.Median * 1e3 / float64(o.load.Clients)
		r.Contenders = append(r.Contenders, res)
	}
	return r
}

func elapsed(s sample) float64 { return float64(s.Elapsed) }
func latency(s sample) float64 { return float64(s.Latency) }
func cpuTime(s sample) float64 { return float64(s.CPU) }

func of(samples []sample, what func(sample) float64, unit float64) spread {
	v := make([]float64, len(samples))
	for i, s := range samples {
		v[i] = what(s) * unit
	}
	return spreadOf(v)
}

// ratio returns a divided by b, round by round, nil if one of them did not run.
func ratio(a, b []sample, what func(sample) float64) *spread {
	if len(a) == 0 || len(a) != len(b) {
		return nil
	}
	v := make([]float64, len(a))
	for i := range a {
		v[i] = what(a[i]) / what(b[i])
	}
	s := spreadOf(v)
	return &s
}

// table writes the report as a table.
func (r *report) table(w io.Writer) error {
	if r.Study != nil {
		fmt.Fprintf(w, "\n%s: %s.\n", r.Case, r.Study.What)
	} else {
		fmt.Fprintf(w, "\n%s; %d rounds, in turn.\n", r.Load, r.Rounds)
	}
	fmt.Fprintf(w, "%d cores of %s, Linux %s, %s, grpc-go %s, go-control-plane %s. Medians (with their intervals).\n\n",
		r.Machine.Cores, r.Machine.CPU, r.Machine.Kernel, r.Versions["go"], r.Versions["google.golang.org/grpc"], r.Versions["github.com/envoyproxy/go-control-plane"])
	if r.Study != nil {
		return r.Study.table(w)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "server\telapsed ms\t× raw\t× bare\tfrom trigger ms\tCPU ms\t× raw\tµs/send\t× less than snapshot\t× less than linear\talloc B/send\tRSS MB\tCPU × bare\telapsed × other\tCPU × other")
	for _, c := range r.Contenders {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t%s\t%s\t%s\t%.0f\t%s\t%s\t%s\n", c.Name,
			c.ElapsedMS.text(0), c.ElapsedToRaw.text(2), c.ElapsedToBare.text(2), c.LatencyMS.text(0),
			c.CPUMS.text(0), c.CPUToRaw.text(2), c.CPUPerSendUS, c.LessCPUThanSnapshot.text(1), c.LessCPUThanLinear.text(1),
			c.AllocPerSend.text(0), c.ResidentMB.Median, c.CPUToBare.text(2), c.ElapsedToOther.text(2), c.CPUToOther.text(2))
	}
	return t.Flush()
}

// text prints median and interval, "-" without a value.
func (s *spread) text(digits int) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, s.Median, digits, s.Low, digits, s.High)
}

func thisMachine() machine {
	m := machine{Cores: runtime.NumCPU(), CPU: runtime.GOARCH}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = string(bytes.TrimSpace(text))
	}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			m.CPU = cmp.Or(strings.TrimSpace(v), m.CPU)
			break
		}
	}
	return m
}

func versions() map[string]string {
	out := map[string]string{"go": runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "google.golang.org/grpc", "github.com/envoyproxy/go-control-plane":
				out[d.Path] = d.Version
			}
		}
	}
	return out
}
