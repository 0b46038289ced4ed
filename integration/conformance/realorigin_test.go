package conformance

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"xdsrelay/internal/xdstest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// library is a control plane's library in one version, built as the program of an origin.
type library struct {
	name string
	// build builds the program, and returns its command line. A skipped error says what is
	// missing on this machine.
	build func() ([]string, error)
	// age is the command line's argument for connections of at most two seconds.
	age string

	once   sync.Once
	shared *realOrigin
	err    error
}

// skipped is the reason why tests with a library cannot run on this machine.
type skipped string

func (s skipped) Error() string { return string(s) }

// root is the top of the repository.
const root = "../.."

// originsDir has the built programs. TestMain sets it.
var originsDir string

const goProgram = "integration/origins/gocontrolplane"

var (
	gcp013 = &library{name: "go-control-plane-0.13", build: goOrigin("-modfile=" + goProgram + "/013/go.mod"), age: "-max-connection-age=2s"}
	gcp014 = &library{name: "go-control-plane-0.14", build: goOrigin(), age: "-max-connection-age=2s"}
	jcp    = &library{name: "java-control-plane-1.0", build: javaOrigin, age: "2"}

	libraries = []*library{gcp013, gcp014, jcp}
)

// goOrigin builds the program with the go-control-plane of a go.mod.
func goOrigin(flags ...string) func() ([]string, error) {
	return sync.OnceValues(func() ([]string, error) {
		dir, err := os.MkdirTemp(originsDir, "")
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, "origin")
		cmd := exec.Command("go", slices.Concat([]string{"build"}, flags, []string{"-o", path, "./" + goProgram})...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
		return []string{path}, nil
	})
}

// javaOrigin builds the program by Maven into .cache/java, if its sources have changed.
var javaOrigin = sync.OnceValues(func() ([]string, error) {
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, skipped("java-control-plane needs a JDK and Maven; there is no " + tool)
		}
	}
	project, err := filepath.Abs(root + "/integration/origins/java")
	if err != nil {
		return nil, err
	}
	build, err := filepath.Abs(root + "/.cache/java")
	if err != nil {
		return nil, err
	}
	var sources []byte
	for _, file := range []string{"pom.xml", "src/main/java/origin/Main.java"} {
		text, err := os.ReadFile(filepath.Join(project, file))
		if err != nil {
			return nil, err
		}
		sources = append(sources, text...)
	}
	complete := filepath.Join(build, "complete") // written last
	if built, err := os.ReadFile(complete); err != nil || !bytes.Equal(built, sources) {
		if err := os.RemoveAll(build); err != nil {
			return nil, err
		}
		cmd := exec.Command("mvn", "-q", "-B", "-Dbuild="+build, "compile")
		cmd.Dir = project
		if out, err := cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
			if os.Getenv("CI") == "" {
				return nil, skipped(err.Error())
			}
			return nil, err
		}
		if err := os.WriteFile(complete, sources, 0o600); err != nil {
			return nil, err
		}
	}
	return []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m",
		"-cp", build + "/classes:" + build + "/dependency/*", "origin.Main"}, nil
})

// realOrigin is a running program of a library. integration/origins/gocontrolplane describes how it
// is controlled.
type realOrigin struct {
	*xdstest.Process
	addr, control string
}

var controlClient = &http.Client{Timeout: xdstest.Patience, Transport: &http.Transport{DisableKeepAlives: true}}

var servingOrigin = regexp.MustCompile(`serving ads=(\S+) control=(\S+)`)

// get returns the library's program that all tests share. Tests without it are skipped.
func (l *library) get(t testing.TB) *realOrigin {
	t.Helper()
	l.once.Do(func() { l.shared, l.err = l.launch() })
	return l.or(t, l.shared, l.err)
}

// aging starts a program for one test, whose connections end after two seconds.
func (l *library) aging(t testing.TB) *realOrigin {
	t.Helper()
	o, err := l.launch(l.age)
	l.or(t, o, err)
	t.Cleanup(o.Kill)
	return o
}

func (l *library) or(t testing.TB, o *realOrigin, err error) *realOrigin {
	t.Helper()
	if why := skipped(""); errors.As(err, &why) {
		t.Skip(why)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (l *library) launch(args ...string) (*realOrigin, error) {
	command, err := l.build()
	if err != nil {
		return nil, err
	}
	serving := make(chan []string, 1)
	p, err := xdstest.LaunchProcess(l.name, exec.Command(command[0], append(command[1:], args...)...), func(line string) {
		if m := servingOrigin.FindStringSubmatch(line); m != nil {
			serving <- m[1:]
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case m := <-serving:
		return &realOrigin{p, m[0], m[1]}, nil
	case <-p.Exited():
		return nil, fmt.Errorf("%s ended at its start:\n%s", l.name, p.Log())
	}
}

// endLibraries ends the programs that tests shared.
func endLibraries() error {
	var errs []error
	for _, l := range libraries {
		if l.shared != nil {
			err := l.shared.Terminate()
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, l.shared.Tail(50))
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// realSite is the control plane of one key at a real origin.
type realSite struct {
	*realOrigin
	key   string
	cache string // go-control-plane: the kind of cache
	node  string // the only node that it serves; empty: all
}

// set replaces all resources of the key. The content of a type is in the format of answer.String.
func (s *realSite) set(t testing.TB, version string, content map[kind]string) {
	t.Helper()
	s.post(t, "set", version, content)
}

// restart is set in a control plane that knows nothing of the one before. All streams end.
func (s *realSite) restart(t testing.TB, version string, content map[kind]string) {
	t.Helper()
	s.post(t, "restart", version, content)
}

// end ends all streams of the key.
func (s *realSite) end(t testing.TB) {
	t.Helper()
	s.post(t, "end", "", nil)
}

func (s *realSite) post(t testing.TB, what, version string, content map[kind]string) {
	t.Helper()
	q := url.Values{"key": {s.key}, "version": {version}, "cache": {s.cache}, "node": {s.node}}
	var lines bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(content)) {
		for thing := range strings.FieldsSeq(content[k]) {
			name, value, _ := parse(thing)
			wire, err := proto.Marshal(body(k, name, value))
			if err != nil {
				t.Fatal(err)
			}
			lines.WriteString(base64.StdEncoding.EncodeToString(wire) + "\n")
		}
	}
	resp, err := controlClient.Post(fmt.Sprintf("http://%s/%s?%s", s.control, what, q.Encode()), "text/plain", &lines)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // only read from
	if resp.StatusCode != http.StatusOK {
		var said bytes.Buffer
		_, _ = said.ReadFrom(resp.Body) // for the message only
		t.Fatalf("%s at %s: %s: %s", what, s.Name, resp.Status, &said)
	}
}

// requests returns what the origin received for the key.
func (s *realSite) requests(t testing.TB) []request {
	t.Helper()
	text, err := xdstest.HTTPGet(fmt.Sprintf("http://%s/requests?key=%s", s.control, url.QueryEscape(s.key)))
	if err != nil {
		t.Fatal(err)
	}
	var out []request
	numbers := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		wire, err := base64.StdEncoding.DecodeString(f[2])
		if err != nil {
			t.Fatal(err)
		}
		sotw, delta := new(discoveryv3.DiscoveryRequest), new(discoveryv3.DeltaDiscoveryRequest)
		var r request
		if f[1] == "delta" {
			err, r = proto.Unmarshal(wire, delta), fromDelta(delta)
		} else {
			err, r = proto.Unmarshal(wire, sotw), fromSotW(sotw)
		}
		if err != nil {
			t.Fatal(err)
		}
		if numbers[f[0]] == 0 {
			numbers[f[0]] = len(numbers) + 1
		}
		r.stream = numbers[f[0]]
		out = append(out, r)
	}
	return out
}

// await waits until the requests fulfil a condition.
func (s *realSite) await(t testing.TB, what string, cond func([]request) bool) {
	t.Helper()
	xdstest.Eventually(t, what, func() error {
		if got := s.requests(t); !cond(got) {
			return fmt.Errorf("the origin received %v", got)
		}
		return nil
	})
}

// wanted returns the names of a type on the newest stream of these requests.
func wanted(all []request, delta bool, k kind) []string {
	have := make(map[string]bool)
	stream := 0
	for _, r := range all {
		if r.kind != k || r.stream < stream {
			continue
		}
		if !delta || r.stream > stream {
			clear(have)
		}
		stream = r.stream
		for _, n := range r.names {
			have[n] = true
		}
		for _, n := range r.dropped {
			delete(have, n)
		}
	}
	return slices.Sorted(maps.Keys(have))
}
