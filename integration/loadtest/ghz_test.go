//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// The input of ghz is consistent: the descriptors have the calls, and the templates make valid
// requests.
func TestGHZCases(t *testing.T) {
	file := filepath.Join(t.TempDir(), "set")
	if err := writeProtoset(file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(b, set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	template := regexp.MustCompile(`\{\{[^}]*\}\}`)
	for _, g := range ghzCases {
		d, err := files.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(g.call, "/", ".")))
		if err != nil {
			t.Fatalf("%s: %v", g.Name, err)
		}
		method := d.(protoreflect.MethodDescriptor)
		for _, r := range g.requests {
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			m := dynamicpb.NewMessage(method.Input())
			if err := protojson.Unmarshal(template.ReplaceAll(text, []byte("000001")), m); err != nil {
				t.Errorf("%s: %s: %v", g.Name, text, err)
			}
		}
	}
}

// The relay serves the directory, and its counters can be read.
func TestGHZOrigin(t *testing.T) {
	o := &options{dir: t.TempDir(), relay: relay(t), log: t.Logf}
	// A fake ghz that makes no load and reports none.
	tool := filepath.Join(o.dir, "tool")
	script := "#!/bin/sh\necho '{\"count\": 0, \"statusCodeDistribution\": {}, \"details\": []}'\n"
	if err := os.WriteFile(tool, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	reports, err := ghzRun(t.Context(), o, tool, ghzCases[:1])
	if err != nil {
		t.Fatal(err)
	}
	if _, kept := reports[0].Result["details"]; kept || reports[0].Relay.Responses != 0 || reports[0].Relay.CPU <= 0 {
		t.Errorf("%+v", reports[0])
	}
	script = "#!/bin/sh\necho '{\"statusCodeDistribution\": {\"OK\": 1, \"Unavailable\": 1}}'\n"
	if err := os.WriteFile(tool, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := ghzRun(t.Context(), o, tool, ghzCases[:1]); err == nil || !strings.Contains(err.Error(), "Unavailable") {
		t.Errorf("streams that failed: %v", err)
	}
}
