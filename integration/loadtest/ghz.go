//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// ghzCase is a load that ghz makes. Its requests are templates of ghz.
type ghzCase struct {
	Name, What string
	call       string
	requests   []map[string]any
	args       []string
}

const (
	sotwCall  = "envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	deltaCall = "envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
)

// ghzNode is the node of a worker of ghz.
var ghzNode = map[string]any{"id": "ghz-{{.WorkerID}}", "cluster": nodeCluster}

// ghzName is a random name that the origin has.
const ghzName = "cluster-{{printf `%06d` (randomInt 0 99)}}"

// ghz closes a stream right after its last message, so the last one of each case needs no response.
var ghzCases = []ghzCase{
	{
		Name: "streams", What: "streams that open, ask for all clusters, are answered, and close after 50 ms",
		call: sotwCall,
		requests: []map[string]any{
			{"node": ghzNode, "type_url": clusterType},
			{"type_url": clusterType},
		},
		args: []string{"--total=4000", "--concurrency=100", "--connections=100", "--stream-interval=50ms", "--stream-call-count=2"},
	},
	{
		Name: "subscriptions", What: "streams that ask for five other load assignments every 50 ms, for 5 s",
		call: sotwCall,
		requests: []map[string]any{
			{"node": ghzNode, "type_url": endpointType, "resource_names": slices.Repeat([]string{ghzName}, 5)},
		},
		args: []string{"--total=400", "--concurrency=200", "--connections=50", "--stream-interval=50ms", "--stream-call-count=100", "--stream-dynamic-messages"},
	},
	{
		Name: "delta", What: "delta streams that subscribe to a load assignment every 50 ms and unsubscribe from another, for 5 s",
		call: deltaCall,
		requests: []map[string]any{
			{"node": ghzNode, "type_url": endpointType, "resource_names_subscribe": []string{ghzName}, "resource_names_unsubscribe": []string{ghzName}},
		},
		args: []string{"--total=400", "--concurrency=200", "--connections=50", "--stream-interval=50ms", "--stream-call-count=100", "--stream-dynamic-messages"},
	},
}

// ghzReport is ghz's report of a case, without the single calls, and the relay's counters.
type ghzReport struct {
	Case   string         `json:"case"`
	What   string         `json:"what"`
	Args   []string       `json:"args"`
	Result map[string]any `json:"ghz"`
	Relay  ghzRelay       `json:"relay"`
}

// ghzRelay are the relay's own counters over the case, and its CPU.
type ghzRelay struct {
	Responses float64       `json:"responses"`
	Bytes     float64       `json:"bytes"`
	CPU       time.Duration `json:"cpu_ns"`
}

// byGHZ runs the loads of ghz against a relay whose origin is a directory.
func byGHZ(ctx context.Context, args []string) error {
	o := &options{log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	flags := flag.NewFlagSet("loadtest ghz", flag.ContinueOnError)
	tool := flags.String("ghz", "ghz", "the program")
	out := flags.String("out", "", "file: keep the reports there")
	flags.StringVar(&o.relay, "relay", "", "the relay's binary (default: build it)")
	timeout := flags.Duration("timeout", 5*time.Minute, "for all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := errors.Join(noneLeft(flags), writable("-out", *out)); err != nil {
		return err
	}
	if _, err := exec.LookPath(*tool); err != nil {
		return fmt.Errorf("ghz: %w; make load gets it and runs this", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done after %s", *timeout))
	defer cancel()
	dir, err := os.MkdirTemp("", "loadtest")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.dir = dir
	reports, err := ghzRun(ctx, o, *tool, ghzCases)
	if err != nil {
		return err
	}
	if *out != "" {
		text, err := json.MarshalIndent(reports, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*out, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return ghzTable(os.Stdout, reports)
}

func ghzRun(ctx context.Context, o *options, tool string, cases []ghzCase) ([]ghzReport, error) {
	if err := o.build(ctx, o.dir); err != nil {
		return nil, err
	}
	set := filepath.Join(o.dir, "ads.protoset")
	if err := writeProtoset(set); err != nil {
		return nil, err
	}
	origin := filepath.Join(o.dir, "origin")
	if err := (load{Bytes: 100_000}).directory(origin); err != nil {
		return nil, err
	}
	c, a, err := o.serve(ctx, o.dir, "file://"+origin)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	var reports []ghzReport
	for _, g := range cases {
		o.log("ghz: %s", g.What)
		r, err := g.run(ctx, tool, set, c, a)
		if err != nil {
			return nil, fmt.Errorf("ghz: %s: %w", g.Name, err)
		}
		reports = append(reports, r)
	}
	return reports, nil
}

func (g *ghzCase) run(ctx context.Context, tool, set string, c *contender, a admin) (ghzReport, error) {
	data, err := json.Marshal(g.requests)
	if err != nil {
		return ghzReport{}, err
	}
	args := append([]string{"--insecure", "--format=json", "--timeout=0", "--call=" + g.call}, g.args...)
	r := ghzReport{Case: g.Name, What: g.What, Args: args}
	before, err := relayCounters(ctx, c, a)
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, tool, append(args, "--protoset="+set, "--data="+string(data), c.addr)...)
	var errors tail
	cmd.Stderr = &errors
	text, err := cmd.Output()
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if err != nil {
		return r, fmt.Errorf("%w\n%s", err, errors.String())
	}
	after, err := relayCounters(ctx, c, a)
	if err != nil {
		return r, err
	}
	r.Relay = ghzRelay{after.Responses - before.Responses, after.Bytes - before.Bytes, after.CPU - before.CPU}
	if err := json.Unmarshal(text, &r.Result); err != nil {
		return r, fmt.Errorf("its report: %w", err)
	}
	delete(r.Result, "details") // each single call
	delete(r.Result, "options") // the arguments, with paths
	for code := range asMap(r.Result["statusCodeDistribution"]) {
		if code != "OK" {
			return r, fmt.Errorf("streams ended with %v: %v", r.Result["statusCodeDistribution"], r.Result["errorDistribution"])
		}
	}
	return r, nil
}

func asMap(v any) map[string]any { m, _ := v.(map[string]any); return m }

func relayCounters(ctx context.Context, c *contender, a admin) (r ghzRelay, err error) {
	if r.CPU, err = settle(c.proc.pid()); err != nil {
		return r, err
	}
	sums, err := a.sums(ctx, "xdsrelay_downstream_responses_total", "xdsrelay_downstream_bytes_total")
	if err != nil {
		return r, err
	}
	r.Responses, r.Bytes = sums[0], sums[1]
	return r, nil
}

// directory writes the files of an origin that is a directory: clusters and their load assignments.
func (l load) directory(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	clusters, err := l.body(0)
	if err != nil {
		return err
	}
	assignments, err := l.assignments(0)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(path, "clusters.pb"), clusters, 0o644),
		os.WriteFile(filepath.Join(path, "endpoints.pb"), assignments, 0o644),
	)
}

// writeProtoset writes the descriptors of the aggregated service. ghz needs them to make requests
// out of JSON.
func writeProtoset(path string) error {
	set := new(descriptorpb.FileDescriptorSet)
	seen := make(map[string]bool)
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(discoveryv3.File_envoy_service_discovery_v3_ads_proto)
	b, err := proto.Marshal(set)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// ghzTable writes the reports as a table.
func ghzTable(w io.Writer, reports []ghzReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\tstreams\tof ghz, s\tstreams/s\tlife of a stream ms, p50\tp99\tresponses\tMB\trelay's CPU s")
	for _, r := range reports {
		at := func(percent float64) string {
			list, _ := r.Result["latencyDistribution"].([]any)
			for _, p := range list {
				if m := asMap(p); m["percentage"] == percent {
					ns, _ := m["latency"].(float64)
					return strconv.FormatFloat(ns/1e6, 'f', 1, 64)
				}
			}
			return "-"
		}
		total, _ := r.Result["total"].(float64)
		rps, _ := r.Result["rps"].(float64)
		fmt.Fprintf(t, "%s\t%v\t%.1f\t%.0f\t%s\t%s\t%.0f\t%.1f\t%.2f\n", r.Case, r.Result["count"], total/1e9, rps,
			at(50), at(99), r.Relay.Responses, r.Relay.Bytes/1e6, r.Relay.CPU.Seconds())
	}
	return t.Flush()
}
