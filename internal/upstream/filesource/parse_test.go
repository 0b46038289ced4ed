package filesource

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/upstream/upstreamtest"
	"xdsrelay/internal/xds"
)

const clusterURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

func noneHeld(xds.TypeURL, string) *xds.Resource { return nil }

// parseOne parses a file with a single section.
func parseOne(t *testing.T, ext, text string) *section {
	t.Helper()
	s, err := parseFile(ext, []byte(text), noneHeld)
	if err != nil {
		t.Fatalf("%s: %v", ext, err)
	}
	if len(s) != 1 {
		t.Fatalf("%d sections", len(s))
	}
	return s[0]
}

// The same response in every kind of file gives the same resource and version.
func TestP80_KindsOfFiles(t *testing.T) {
	c, err := anypb.New(&clusterv3.Cluster{Name: "c", ConnectTimeout: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	m := &discoveryv3.DiscoveryResponse{VersionInfo: "7", TypeUrl: clusterURL, Resources: []*anypb.Any{c}}
	binary, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	text, err := prototext.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	json := `{"versionInfo":"7","type_url":"` + clusterURL + `","resources":[{"@type":"` + clusterURL + `","name":"c","connectTimeout":"1s"}]}`
	yaml := "version_info: '7'\ntype_url: " + clusterURL + "\nresources:\n- '@type': " + clusterURL + "\n  name: c\n  connect_timeout: 1s\n"
	want := parseOne(t, ".pb", string(binary)).resources[0]
	for _, f := range [][2]string{
		{".json", json}, {".yaml", yaml}, {".yml", yaml}, {".yaml", json}, {".pb_text", string(text)}, {".textproto", string(text)},
		{".yaml", strings.Replace(yaml, "type_url: "+clusterURL+"\n", "", 1)}, // as in files for Envoy
	} {
		s := parseOne(t, f[0], f[1])
		if s.url != cds || s.version != "7" || len(s.resources) != 1 || !s.resources[0].Same(want) {
			t.Errorf("%s: %+v", f[0], s)
		}
	}
	if len(decoders) != 6 {
		t.Errorf("%d kinds of files", len(decoders))
	}
	// A resource that equals the held one shares its memory.
	s, err := parseFile(".json", []byte(json), func(typ xds.TypeURL, name string) *xds.Resource {
		if typ != cds || name != "c" {
			t.Errorf("asked for %s %s", typ, name)
		}
		return want
	})
	if err != nil || s[0].resources[0] != want {
		t.Errorf("the held resource was rebuilt, %v", err)
	}
}

func TestP80_WrappedResources(t *testing.T) {
	const vhost = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
	text := `
resources:
- "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
  name: rc/a
  version: "12"
  aliases: [rc/b.example]
  ttl: 5s
  resource: {"@type": ` + vhost + `, name: a, domains: [a.example]}
`
	s := parseOne(t, ".yaml", text)
	r := s.resources[0]
	if s.url != xds.VHostType || r.Name != "rc/a" || r.OriginVersion != "12" || len(r.Aliases) != 1 || r.Aliases[0] != "rc/b.example" {
		t.Fatalf("%s %+v", s.url, r)
	}
	body := new(anypb.Any)
	upstreamtest.MustUnmarshal(t, r.Any(), body)
	host := new(routev3.VirtualHost)
	if err := body.UnmarshalTo(host); err != nil || host.Name != "a" {
		t.Errorf("%v, %v", host, err)
	}
	_, err := parseFile(".yaml", []byte(strings.Split(text, "  resource:")[0]+"type_url: "+vhost), noneHeld)
	if !errors.Is(err, xds.ErrUnreadable) {
		t.Errorf("without a body: %v", err)
	}
}

// A fault names its place: in JSON and text the line, in YAML the resource.
func TestP80_Faults(t *testing.T) {
	head := "type_url: " + clusterURL + "\nresources:\n"
	cluster := func(name string) string { return "- '@type': " + clusterURL + "\n  name: " + name + "\n" }
	for _, c := range []struct {
		what, ext, text string
		is              error
		says            string
	}{
		{"broken JSON", ".json", "{\n\"resources\": [\n}", xds.ErrUnreadable, "unexpected token }"},
		{"cut JSON", ".json", "{\n\"resources\": [", xds.ErrUnreadable, "unexpected"},
		{"unknown field, JSON", ".json", "{\n\"type_url\": \"x\",\n\"resourcez\": []}", xds.ErrUnreadable, `unknown field "resourcez"`},
		{"unknown field, YAML", ".yaml", head + cluster("a") + "  # a comment\n\n  nam: b\n", xds.ErrUnreadable, `unknown field "nam"`},
		{"wrong kind of value", ".yaml", head + cluster("a") + "  connect_timeout: soon\n", xds.ErrUnreadable, "resources[0]: invalid google.protobuf.Duration value [redacted]"},
		{"number for a string", ".yaml", head + cluster("7"), xds.ErrUnreadable, "invalid value for string"},
		{"the same key twice", ".yaml", head + cluster("a") + "  name: b\n", xds.ErrUnreadable, `key "name" already set`},
		{"the same key twice beside a merge", ".yaml", head + "- &a\n  " + cluster("a")[2:] + "- <<: *a\n  name: b\n  name: c\n", xds.ErrUnreadable, `key "name" already set`},
		{"unknown type", ".yaml", "resources:\n- '@type': type.googleapis.com/acme.Unknown\n  a: b\n", xds.ErrUnreadable, "acme.Unknown"},
		{"no @type", ".yaml", head + "- name: a\n", xds.ErrUnreadable, "@type"},
		{"broken YAML", ".yaml", "type_url: x\nresources: [\n", xds.ErrUnreadable, ""},
		{"a tab in YAML", ".yaml", "type_url: x\nresources:\n\t- a\n", xds.ErrUnreadable, "cannot start any token"},
		{"unknown alias", ".yaml", "type_url: *x\n", xds.ErrUnreadable, "unknown anchor"},
		{"an alias within its anchor", ".yaml", "type_url: x\nresources: &a\n- *a\n", xds.ErrUnreadable, "contains itself"},
		{"a merge within itself", ".yaml", "a: &a\n  <<: [*a, *a]\n", xds.ErrUnreadable, "contains itself"},
		{"a key that is a list", ".yaml", "type_url: x\n[a]: b\n", xds.ErrUnreadable, "invalid map key"},
		{"a merge of a scalar", ".yaml", "type_url: x\n<<: 5\n", xds.ErrUnreadable, "map merge requires map"},
		{"broken text", ".textproto", "type_url: 'x'\nnope: 1\n", xds.ErrUnreadable, "nope"},
		{"broken binary", ".pb", "\x12\x7f", xds.ErrUnreadable, ""},
		{"a list", ".json", "[]", xds.ErrUnreadable, ""},
		{"a number for a duration", ".yaml", head + cluster("a") + cluster("b") + "  connect_timeout: 5\n", xds.ErrUnreadable, `unreadable: resources[1]: syntax error: unexpected token [redacted]`},
		{"a mapping for a list", ".json", "{\n\"resources\": [{\"@type\": \"" + clusterURL + "\", \"name\": \"ä\", \"metadata\": {}, \"health_checks\": {}}]}", xds.ErrUnreadable, "unreadable: syntax error (line 2:126): unexpected token {"},
		{"a scalar in a list", ".yaml", head + cluster("a") + "  health_checks:\n  - timeout: 1s\n  - 5s\n", xds.ErrUnreadable, `unreadable: resources[0]: syntax error: unexpected token [redacted]`},
		{"a bad duration", ".yaml", head + cluster("a") + "  connect_timeout: soon\n", xds.ErrUnreadable, "unreadable: resources[0]: invalid google.protobuf.Duration"},
		{"a list for the file", ".yaml", "- a\n", xds.ErrUnreadable, "unreadable: syntax error: unexpected token ["},
		{"a field without its path", ".yaml", head + cluster("a") + "  lb_policy: X\n", xds.ErrUnreadable, "unreadable: resources[0]: invalid value for enum field lbPolicy"},
		{"no name", ".yaml", head + cluster("a") + "- '@type': " + clusterURL + "\n  type: EDS\n", xds.ErrNameless, "resources[1]: resource without a name: field 1 of a " + clusterURL + " must be the name, but is missing"},
		{"an empty JSON", ".json", "", errNoResponse, ""},
		{"blanks alone, JSON", ".json", " \n", errNoResponse, ""},
		{"cut binary", ".pb", "\x0a", xds.ErrUnreadable, "unreadable: "},
		{"an empty file", ".yaml", "", errNoResponse, ""},
		{"comments alone", ".yaml", "# later\n---\n", errNoResponse, ""},
		{"an empty binary", ".pb", "", errNoResponse, ""},
		{"nothing said", ".json", "{}", errNoResponse, ""},
		{"the same name twice", ".yaml", head + cluster("a") + cluster("a"), xds.ErrDuplicateName, `"a"`},
		{"the same name in two documents", ".yaml", head + cluster("a") + "---\n" + head + cluster("a"), xds.ErrDuplicateName, `"a"`},
		{"another type", ".yaml", "type_url: x/y\nresources:\n" + cluster("a"), xds.ErrOtherType, clusterURL},
		{"nameless", ".yaml", head + cluster(`""`), xds.ErrNameless, ""},
		{"long name", ".yaml", head + cluster(strings.Repeat("x", 2049)), xds.ErrLongName, ""},
	} {
		s, err := parseFile(c.ext, []byte(c.text), noneHeld)
		if !errors.Is(err, c.is) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v, %v", c.what, s, err)
			continue
		}
		if c.ext == ".yaml" && strings.Contains(err.Error(), "(line") || strings.Contains(err.Error(), "proto:") || strings.ContainsRune(err.Error(), '\u00a0') {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// Values are read as YAML 1.1 defines them, except that a date stays text.
func TestP80_YAML(t *testing.T) {
	text := `
type_url: "` + clusterURL + `"
resources:
- "@type": ` + clusterURL + `
  name: one
  alt_stat_name: 2026-01-02      # no date
  per_connection_buffer_limit_bytes: 0x400
  lb_policy: 2
  connect_timeout: 2s
  common_lb_config: {healthy_panic_threshold: {value: .5}}
  metadata: &metadata
    filter_metadata:
      m: {"1": yes, 2: ~, true: [-1, 1e3, "é<&>"], bin: aGk=}
- {"@type": ` + clusterURL + `, name: two, metadata: *metadata}
---
# nothing
---
type_url: ` + clusterURL + `
resources: [&four {"@type": ` + clusterURL + `, name: four, connect_timeout: 4s}, {name: five, <<: *four}]
`
	s, err := parseFile(".yaml", []byte(text), noneHeld)
	if err != nil {
		t.Fatal(err)
	}
	clusters := map[string]*clusterv3.Cluster{}
	for _, sec := range s {
		for _, r := range sec.resources {
			body, c := new(anypb.Any), new(clusterv3.Cluster)
			upstreamtest.MustUnmarshal(t, r.Any(), body)
			if err := body.UnmarshalTo(c); err != nil {
				t.Fatal(err)
			}
			clusters[r.Name] = c
		}
	}
	if len(s) != 2 || len(clusters) != 4 {
		t.Fatalf("%d sections, clusters %v", len(s), clusters)
	}
	one := clusters["one"]
	if one.AltStatName != "2026-01-02" || one.PerConnectionBufferLimitBytes.GetValue() != 1024 || one.LbPolicy != clusterv3.Cluster_RING_HASH ||
		one.CommonLbConfig.GetHealthyPanicThreshold().GetValue() != .5 || one.ConnectTimeout.GetSeconds() != 2 {
		t.Errorf("one: %v", one)
	}
	m := one.Metadata.FilterMetadata["m"].AsMap()
	if fmt.Sprint(m) != "map[1:true 2:<nil> bin:aGk= true:[-1 1000 é<&>]]" {
		t.Errorf("metadata %v", m)
	}
	if five := clusters["five"]; five.ConnectTimeout.GetSeconds() != 4 {
		t.Errorf("five: %v", five)
	}
	if two := clusters["two"]; !proto.Equal(two.Metadata, one.Metadata) {
		t.Errorf("two: %v", two)
	}
}

// YAML aliases cannot expand a file beyond a bound.
func TestP80_AliasesAreBounded(t *testing.T) {
	bomb := "type_url: x\nresources:\n- &a0 [aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\n"
	for i := range 12 {
		bomb += fmt.Sprintf("- &a%d [%s]\n", i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 9), ","))
	}
	merges := "a0: &a0 {x: y}\n"
	for i := range 40 {
		merges += fmt.Sprintf("a%d: &a%d {<<: [*a%d, *a%d]}\n", i+1, i+1, i, i)
	}
	for what, text := range map[string]string{"aliases": bomb, "merges": merges} {
		if _, err := parseFile(".yaml", []byte(text), noneHeld); !errors.Is(err, xds.ErrUnreadable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Any content gives resources or a fault. Parsing the result again gives the same result.
func FuzzParseFile(f *testing.F) {
	f.Fuzz(func(t *testing.T, kind byte, raw []byte) {
		ext := []string{".json", ".yaml", ".pb", ".textproto"}[kind%4]
		sections, err := parseFile(ext, raw, noneHeld)
		if err != nil {
			return
		}
		if len(sections) == 0 {
			t.Fatal("neither sections nor a fault")
		}
		held := map[string]*xds.Resource{}
		for _, s := range sections {
			for _, r := range s.resources {
				if r.Name == "" || r.TypeURL() != s.url {
					t.Fatalf("%q of %s in %s", r.Name, r.TypeURL(), s.url)
				}
				held[string(s.url)+" "+r.Name] = r
			}
		}
		again, err := parseFile(ext, raw, func(typ xds.TypeURL, name string) *xds.Resource { return held[string(typ)+" "+name] })
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range again {
			for _, r := range s.resources {
				if held[string(s.url)+" "+r.Name] != r {
					t.Fatalf("%s is another the second time", r.Name)
				}
			}
		}
	})
}

// A fault has no value of the file, which may be a secret.
func TestP80_FaultsHaveNoValues(t *testing.T) {
	const secret = "hunter2"
	for _, c := range []struct{ ext, text string }{
		{".json", `{"resources": ["` + secret + `"]}`},
		{".json", `{"resources": [{"@type": "` + clusterURL + `", "connect_timeout": "` + secret + `"}]}`},
		{".json", `{"resources": [{"@type": "` + clusterURL + `", "name": ` + secret + `}]}`},
		{".yaml", "resources:\n- " + secret + "\n"},
		{".yaml", "resources:\n- '@type': " + clusterURL + "\n  transport_socket: " + secret + "\n"},
		{".yaml", "resources:\n- ? [" + secret + "]\n  : x\n"},
		{".yaml", "resources: *" + secret + "\n"},
		{".textproto", `resources { type_url: "x" value: ` + secret + ` }`},
		{".pb_text", `resources: "` + secret + `"`},
		{".pb_text", `version_info: 'a' "` + secret + `" 5`},
	} {
		if _, err := parseFile(c.ext, []byte(c.text), noneHeld); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s %s: %v", c.ext, c.text, err)
		}
	}
}
