package upstream

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"xdsrelay/internal/filewatch"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// fileOrigin is an origin that is a directory (P80). Its files are read once
// for all keys, and all keys share the resources.
type fileOrigin struct {
	name, dir string
	log       *slog.Logger
	metrics   *telemetry.Metrics
	connected *telemetry.Gauge

	mu      sync.Mutex
	now     *contents
	changed chan struct{} // closed when now is replaced
	wrong   []FileFault   // replaced as a whole

	// Owned by upkeep.
	files    map[string]*file
	reported map[string]string // the faults that were logged, by path
}

// contents are what all files say together. They are immutable.
type contents struct {
	types map[xds.TypeURL]*fileType
	// failed: the directory could not be read, and never was.
	failed error
}

// fileType is what all files say of one type; the same pointer means the same.
type fileType struct {
	version   string
	resources map[string]*xds.Resource
	// goes has the names of what goes by a handle; nil if nothing does.
	goes map[string][]string
}

var nothing = new(fileType)

// index makes goes.
func (t *fileType) index() {
	for name, r := range t.resources {
		for _, h := range r.Handles() {
			if t.goes == nil {
				t.goes = make(map[string][]string)
			}
			t.goes[h] = append(t.goes[h], name)
		}
	}
}

// of returns what is said of typ.
func (c *contents) of(typ xds.TypeURL) *fileType {
	if t := c.types[typ]; t != nil {
		return t
	}
	return nothing
}

// file is the state of one file.
type file struct {
	sum   [sha256.Size]byte // of the content that was read last
	fault error             // of that content
	good  []*section        // the last valid content that names nothing that another file's good names
	next  []*section        // valid content that is not good yet; nil: none
}

// newFileOrigin makes the origin of a directory: the path of a file: URL, with
// or without its empty host. A directory that does not exist is an origin that
// cannot be reached.
func newFileOrigin(name, path string, opts *Options, m *telemetry.Origin) (*fileOrigin, error) {
	if rest, ok := strings.CutPrefix(path, "//"); ok {
		path = rest
	}
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%q: not an absolute directory", path)
	}
	path = filepath.Clean(path)
	if is, err := os.Stat(path); err == nil && !is.IsDir() {
		return nil, fmt.Errorf("%s is no directory", path)
	}
	return &fileOrigin{
		name: name, dir: path,
		log: opts.Log.With("origin", name), metrics: opts.Metrics, connected: m.Connected,
		changed: make(chan struct{}), files: make(map[string]*file), reported: make(map[string]string),
	}, nil
}

// upkeep follows the directory, for all keys, until ctx ends.
func (o *fileOrigin) upkeep(ctx context.Context) error {
	defer o.connected.Set(0)
	return filewatch.Run(ctx, o.log, o.paths, o.scan)
}

// paths returns the directory and the files in it.
func (o *fileOrigin) paths() []string {
	names, _ := o.list() // reading tells the error
	out := []string{o.dir}
	for _, name := range names {
		out = append(out, filepath.Join(o.dir, name))
	}
	return out
}

// scan reads the directory and publishes what its files say together. A directory without a
// valid file is an origin that cannot be reached: what was published stays. So is one that has a
// file with a fault before anything was published: the file's resources would count as deleted.
func (o *fileOrigin) scan() {
	faults, err := o.read()
	all := o.merge()
	if names := slices.Sorted(maps.Keys(faults)); len(names) > 0 && (o.never() || len(all.types) == 0) {
		err = fmt.Errorf("%s: %w", names[0], faults[names[0]])
	}
	o.report(faults, err)
	if err == nil {
		o.publish(all)
		o.connected.Set(1)
		return
	}
	o.connected.Set(0)
	if o.never() {
		o.publish(&contents{failed: err})
	}
}

// never reports whether nothing was published yet.
func (o *fileOrigin) never() bool {
	now, _ := o.load()
	return now == nil || now.failed != nil
}

// maxFaults is how many faults of a directory are shown.
const maxFaults = 20

// report keeps the faults of the files, by name, and of the directory for faults(). It logs
// each fault once when it comes and once when it goes.
func (o *fileOrigin) report(faults map[string]error, dir error) {
	list := faultList(o.dir, faults, dir)
	o.mu.Lock()
	o.wrong = list[:min(len(list), maxFaults)]
	o.mu.Unlock()
	now := make(map[string]string, len(list))
	for _, f := range list {
		now[f.File] = f.Err.Error()
		if o.reported[f.File] == now[f.File] {
			continue
		}
		o.metrics.Reject(faultOf(f.Err))
		o.log.Warn(o.meaning(f.File), "file", f.File, "error", f.Err)
	}
	for path := range o.reported {
		if now[path] != "" {
			continue
		}
		text := "readable again"
		if path != o.dir && o.files[filepath.Base(path)] == nil {
			text = "file of an origin is gone, and what was wrong with it"
		}
		o.log.Info(text, "file", path)
	}
	o.reported = now
}

// meaning says what follows from a fault of a file or of the directory, and counts it.
func (o *fileOrigin) meaning(path string) string {
	if path == o.dir {
		if o.never() {
			return "directory of an origin not served, until all of it can be read"
		}
		return "directory of an origin not readable, what was read stays"
	}
	f := o.files[filepath.Base(path)]
	if f.good == nil {
		return "file of an origin refused, nothing of it is served"
	}
	for _, s := range f.good {
		o.metrics.Type(s.url).Updates[telemetry.Rejected].Inc()
	}
	return "file of an origin refused, its last valid content stays"
}

func (o *fileOrigin) faults() []FileFault {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrong
}

// FileFault is what is wrong with a file of an origin, or with its directory.
type FileFault struct {
	File string
	Err  error
}

// faultList lists the fault of a directory, if any, and those of its files, by name.
func faultList(dir string, faults map[string]error, err error) (out []FileFault) {
	if err != nil {
		out = append(out, FileFault{File: dir, Err: err})
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		out = append(out, FileFault{File: filepath.Join(dir, name), Err: faults[name]})
	}
	return out
}

// CheckDirectory reads a directory as an origin of it would, and returns what is wrong.
func CheckDirectory(dir string) []FileFault {
	o := &fileOrigin{dir: dir, files: make(map[string]*file)}
	faults, err := o.read()
	return faultList(dir, faults, err)
}

// maxReads bounds how often a directory is read again because it changed meanwhile.
const maxReads = 3

// read reads all files, and makes valid content good. It returns what is wrong with files, by
// name. If files change meanwhile it reads them again: it may have read one file before and one
// after a swap, and a resource that moves between them would be missing.
func (o *fileOrigin) read() (faults map[string]error, err error) {
	for range maxReads {
		before := filewatch.Look(o.paths())
		names, err := o.list()
		if err != nil {
			return nil, err
		}
		faults = o.readAll(names)
		if before.Equal(filewatch.Look(o.paths())) {
			break
		}
	}
	o.settleNames(faults)
	return faults, nil
}

// ErrNoFiles is the fault of a directory without files. It is more likely that nothing is mounted
// there than that the origin has no resources.
var ErrNoFiles = errors.New("no file in it is served (.json, .yaml, .yml, .pb, .pb_text, .textproto); one with a type_url and no resources would say that there are none")

// list returns the names of the files that are served. There is at least one, or an error.
func (o *fileOrigin) list() (names []string, err error) {
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if served(e.Name()) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, ErrNoFiles
	}
	return names, nil
}

// served reports whether a file of this name is the origin's.
func served(name string) bool {
	return !strings.HasPrefix(name, ".") && decoders[filepath.Ext(name)] != nil
}

// readAll reads these files, and forgets others.
func (o *fileOrigin) readAll(names []string) (faults map[string]error) {
	faults = make(map[string]error)
	for _, name := range names {
		if o.files[name] == nil {
			o.files[name] = new(file)
		}
		if err := o.readFile(name, o.files[name]); err != nil {
			faults[name] = err
		}
	}
	maps.DeleteFunc(o.files, func(name string, _ *file) bool { return !slices.Contains(names, name) })
	return faults
}

// maxFile is the largest file that is read; no response is larger (P59).
const maxFile = maxResponse

// readFile reads a file. Valid content that is new becomes f.next. It returns the fault of the
// content also if the content is the same as before.
func (o *fileOrigin) readFile(name string, f *file) error {
	path := filepath.Join(o.dir, name)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("no regular file")
	case info.Size() > maxFile:
		return fmt.Errorf("larger than %d bytes", maxFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(raw); sum != f.sum {
		f.sum = sum
		f.next, f.fault = parseFile(filepath.Ext(path), raw, o.held)
	}
	return f.fault
}

// held is the resource that is served under a name, for sharing its memory.
func (o *fileOrigin) held(typ xds.TypeURL, name string) *xds.Resource {
	c, _ := o.load()
	if c == nil {
		return nil
	}
	return c.of(typ).resources[name]
}

// settleNames makes the new content of files good, all of it together, because a resource may
// move from one file to another. A name in two files is a fault. Then one of the two keeps its
// good content: the one whose good content lacks the name, otherwise the later one by name. So
// no two good contents ever have a name in common.
func (o *fileOrigin) settleNames(faults map[string]error) {
	type id struct {
		url  xds.TypeURL
		name string
	}
	names := slices.Sorted(maps.Keys(o.files))
	back := make(map[string]bool) // the files that keep their good content
	content := func(name string) []*section {
		if f := o.files[name]; f.next == nil || back[name] {
			return f.good
		}
		return o.files[name].next
	}
	clash := func() bool {
		said := make(map[id]string)
		for _, name := range names {
			for _, s := range content(name) {
				for _, r := range s.resources {
					other, twice := said[id{s.url, r.Name}]
					if !twice {
						said[id{s.url, r.Name}] = name
						continue
					}
					loser, winner := name, other
					if says(o.files[name].good, s.url, r.Name) {
						loser, winner = other, name
					}
					back[loser] = true
					faults[loser] = fmt.Errorf("%w: %q, also in %s", xds.ErrTwice, r.Name, winner)
					return true
				}
			}
		}
		return false
	}
	for clash() { // each turn drops the new content of one file, and good contents do not clash
	}
	for _, name := range names {
		if f := o.files[name]; f.next != nil && !back[name] {
			f.good, f.next = f.next, nil
		}
	}
}

func says(sections []*section, url xds.TypeURL, name string) bool {
	return slices.ContainsFunc(sections, func(s *section) bool {
		return s.url == url && slices.ContainsFunc(s.resources, func(r *xds.Resource) bool { return r.Name == name })
	})
}

// merge returns what all good contents say together. The origin's version of a
// type is that of the one file that gives the type.
func (o *fileOrigin) merge() *contents {
	c := &contents{types: make(map[xds.TypeURL]*fileType)}
	sections := make(map[xds.TypeURL]int)
	for _, f := range o.files {
		for _, s := range f.good {
			t := c.types[s.url]
			if t == nil {
				t = &fileType{version: s.version, resources: make(map[string]*xds.Resource)}
				c.types[s.url] = t
			}
			if sections[s.url]++; sections[s.url] > 1 {
				t.version = ""
			}
			for _, r := range s.resources {
				t.resources[r.Name] = r
			}
		}
	}
	for _, t := range c.types {
		t.index()
	}
	return c
}

// publish makes c what is served, unless it says what is served already. What
// it says of a type that did not change keeps its pointer.
func (o *fileOrigin) publish(c *contents) {
	was, _ := o.load()
	if was != nil {
		same := (was.failed == nil) == (c.failed == nil) && len(was.types) == len(c.types)
		for url, t := range c.types {
			old := was.types[url]
			if old != nil && old.version == t.version && maps.Equal(old.resources, t.resources) {
				c.types[url] = old
			} else {
				same = false
			}
		}
		if same {
			return
		}
	}
	if c.failed == nil {
		o.metrics.ConfigReceived(time.Now())
	}
	o.mu.Lock()
	o.now = c
	wake := o.changed
	o.changed = make(chan struct{})
	o.mu.Unlock()
	close(wake)
}

// load returns what is served, nil before the directory was looked at, and what
// is closed when that changes.
func (o *fileOrigin) load() (*contents, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now, o.changed
}

func (o *fileOrigin) connections() int { return o.connected.Value() }

func (o *fileOrigin) attach(s *line) session { return &fileSession{origin: o, stream: s} }
