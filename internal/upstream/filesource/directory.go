package filesource

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
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

// Directory is a directory that serves as an origin (P80). Its files are read once for all keys,
// and all keys share the resources. Make one by New.
type Directory struct {
	name, dir string
	log       *slog.Logger
	metrics   *telemetry.Metrics
	origin    *telemetry.Origin

	readable   func()
	unreadable func(error)

	mu      sync.Mutex
	current *contents
	changed chan struct{} // closed when current is replaced
	faults  []Fault       // replaced as a whole

	reloading sync.Mutex // protects the fields below
	files     map[string]*fileState
	reported  map[string]string // the faults that were logged, by path
}

// contents is the merged content of all files. It is immutable.
type contents struct {
	types map[xds.TypeURL]*typeContents
	// failed: the directory could not be read, and never was.
	failed error
}

// typeContents is the merged content of all files for one type. Equal pointers mean equal content.
type typeContents struct {
	version   string
	resources map[string]*xds.Resource
	// byAlias has the names of the resources that have an alias or match a glob, by that alias or
	// glob; nil if none has any.
	byAlias map[string][]string
}

var noContents = new(typeContents)

// index makes byAlias.
func (t *typeContents) index() {
	for name, r := range t.resources {
		for _, alias := range r.AliasesAndGlob() {
			if t.byAlias == nil {
				t.byAlias = make(map[string][]string)
			}
			t.byAlias[alias] = append(t.byAlias[alias], name)
		}
	}
}

func (c *contents) ofType(typ xds.TypeURL) *typeContents {
	if t := c.types[typ]; t != nil {
		return t
	}
	return noContents
}

// fileState is the state of one file.
type fileState struct {
	sum   [sha256.Size]byte // of the content that was read last
	fault error             // of that content
	good  []*section        // the last valid content without names of another file's good content
	next  []*section        // valid content that is not yet good; nil: none
}

// Options of a Directory; all are required, except the functions.
type Options struct {
	Name    string // the origin's name
	Path    string // path of a file: URL, with or without its empty host
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	Origin  *telemetry.Origin // the origin's; Connected is 1 while the directory is readable
	// Readable is called when the directory was read. Unreadable is called when it could not be
	// read, and never could. Run and Reload call them.
	Readable   func()
	Unreadable func(error)
}

// New makes the origin of a directory. A directory that does not exist yet is no error: it is an
// unreachable origin.
func New(o Options) (*Directory, error) {
	path, _ := strings.CutPrefix(o.Path, "//")
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the directory must be an absolute path, but is %q", path)
	}
	path = filepath.Clean(path)
	if is, err := os.Stat(path); err == nil && !is.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", path)
	}
	if o.Readable == nil {
		o.Readable, o.Unreadable = func() {}, func(error) {}
	}
	return &Directory{
		name: o.Name, dir: path, readable: o.Readable, unreadable: o.Unreadable,
		log: o.Log.With("origin", o.Name), metrics: o.Metrics, origin: o.Origin,
		changed: make(chan struct{}), files: make(map[string]*fileState), reported: make(map[string]string),
	}, nil
}

// Run follows the directory until ctx ends. It returns nil then.
func (d *Directory) Run(ctx context.Context) error {
	defer d.origin.Connected.Set(0)
	return filewatch.Run(ctx, d.log, d.paths, d.Reload)
}

// Reload reads the directory again. It reports whether the operating system let it read all files.
// Run calls it when the directory changes.
func (d *Directory) Reload() (ok bool) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	return d.scan()
}

// paths returns the directory and the files in it.
func (d *Directory) paths() []string {
	names, _ := d.list() // read reports the error
	out := []string{d.dir}
	for _, name := range names {
		out = append(out, filepath.Join(d.dir, name))
	}
	return out
}

// scan reads the directory and publishes the merged content of its files. A directory without a
// valid file is an unreachable origin: the published content stays. The same holds if a file has a
// fault before anything was published: its resources would count as deleted.
func (d *Directory) scan() (ok bool) {
	faults, err := d.read()
	ok = err == nil
	for _, fault := range faults {
		ok = ok && !errors.As(fault, new(*fs.PathError))
	}
	all := d.merge()
	if names := slices.Sorted(maps.Keys(faults)); len(names) > 0 && (d.neverPublished() || len(all.types) == 0) {
		err = fmt.Errorf("%s: %w", names[0], faults[names[0]])
	}
	d.report(faults, err)
	if err == nil {
		d.publish(all)
		d.origin.Connected.Set(1)
		d.readable()
		return ok
	}
	d.origin.Connected.Set(0)
	if d.neverPublished() {
		err = fmt.Errorf("read directory: %w", err)
		d.publish(&contents{failed: err})
		d.unreadable(err)
	}
	return ok
}

func (d *Directory) neverPublished() bool {
	now, _ := d.load()
	return now == nil || now.failed != nil
}

// maxFaults is how many faults of a directory are shown.
const maxFaults = 20

// report keeps the faults of the files, by name, and of the directory for Faults. It logs each
// fault once when it appears and once when it is gone.
func (d *Directory) report(faults map[string]error, dir error) {
	list := faultList(d.dir, faults, dir)
	d.mu.Lock()
	d.faults = list[:min(len(list), maxFaults)]
	d.mu.Unlock()
	d.origin.FaultyFiles.Set(len(list))
	now := make(map[string]string, len(list))
	for _, f := range list {
		now[f.File] = f.Err.Error()
		if d.reported[f.File] == now[f.File] {
			continue
		}
		d.metrics.Reject(telemetry.FaultOf(f.Err))
		d.log.Warn(d.meaning(f.File), "file", f.File, "error", f.Err)
	}
	for path := range d.reported {
		if now[path] != "" {
			continue
		}
		text := "origin file or directory readable again"
		if path != d.dir && d.files[filepath.Base(path)] == nil {
			text = "origin file removed, and its fault"
		}
		d.log.Info(text, "file", path)
	}
	d.reported = now
}

// meaning returns the consequence of a fault of a file or of the directory, and counts it.
func (d *Directory) meaning(path string) string {
	if path == d.dir {
		if d.neverPublished() {
			return "origin directory not served: the relay cannot read all of it"
		}
		return "origin directory not readable; the previous resources stay in force"
	}
	f := d.files[filepath.Base(path)]
	if f.good == nil {
		return "origin file rejected; the relay serves nothing of it"
	}
	for _, s := range f.good {
		d.metrics.Type(s.url).Updates[telemetry.Rejected].Inc()
	}
	return "origin file rejected; its last valid content stays in force"
}

// Faults returns the current faults, at most maxFaults.
func (d *Directory) Faults() []Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.faults
}

// Fault is a fault of an origin's file or directory.
type Fault struct {
	File string
	Err  error
}

// faultList lists the fault of a directory, if any, and those of its files, by name.
func faultList(dir string, faults map[string]error, err error) (out []Fault) {
	if err != nil {
		out = append(out, Fault{File: dir, Err: err})
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		out = append(out, Fault{File: filepath.Join(dir, name), Err: faults[name]})
	}
	return out
}

// CheckDirectory reads a directory as an origin would, and returns its faults.
func CheckDirectory(dir string) []Fault {
	d := &Directory{dir: dir, files: make(map[string]*fileState)}
	faults, err := d.read()
	return faultList(dir, faults, err)
}

// maxReads bounds how often a directory is reread because it changed meanwhile.
const maxReads = 3

// read reads all files, and makes valid content good. It returns the faults of files, by name. If
// files change meanwhile it reads them again. Otherwise it may have read one file before and one
// after a swap, and a resource that moves between them would be missing.
func (d *Directory) read() (faults map[string]error, err error) {
	for range maxReads {
		before := filewatch.Look(d.paths())
		names, err := d.list()
		if err != nil {
			return nil, err
		}
		faults = d.readAll(names)
		if before.Equal(filewatch.Look(d.paths())) {
			break
		}
	}
	d.settleNames(faults)
	return faults, nil
}

// ErrNoFiles is the fault of a directory without files. It is more likely that nothing is mounted
// there than that the origin has no resources.
var ErrNoFiles = errors.New("the directory has no file of resources (.json, .yaml, .yml, .pb, .pb_text, .textproto); a type_url without resources is enough")

// list returns the names of the served files. There is at least one, or an error.
func (d *Directory) list() (names []string, err error) {
	entries, err := os.ReadDir(d.dir)
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

// served reports whether the origin serves a file of this name.
func served(name string) bool {
	return !strings.HasPrefix(name, ".") && decoders[filepath.Ext(name)] != nil
}

// readAll reads these files, and drops the state of others.
func (d *Directory) readAll(names []string) (faults map[string]error) {
	faults = make(map[string]error)
	for _, name := range names {
		if d.files[name] == nil {
			d.files[name] = new(fileState)
		}
		if err := d.readFile(name, d.files[name]); err != nil {
			faults[name] = err
		}
	}
	maps.DeleteFunc(d.files, func(name string, _ *fileState) bool { return !slices.Contains(names, name) })
	return faults
}

// maxFile is the largest file that is read, in bytes; no response is larger (P59).
const maxFile = 256 << 20

// readFile reads a file. New valid content becomes f.next. It returns the fault of the content even
// if the content is unchanged.
func (d *Directory) readFile(name string, f *fileState) error {
	path := filepath.Join(d.dir, name)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Size() > maxFile:
		return fmt.Errorf("larger than %d bytes", maxFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(raw); sum != f.sum {
		f.sum = sum
		f.next, f.fault = parseFile(filepath.Ext(path), raw, d.held)
	}
	return f.fault
}

// held is the served resource of this name, for sharing its memory.
func (d *Directory) held(typ xds.TypeURL, name string) *xds.Resource {
	c, _ := d.load()
	if c == nil {
		return nil
	}
	return c.ofType(typ).resources[name]
}

// settleNames makes the new content of files good, all of it together, because a resource may
// move from one file to another. A name in two files is a fault. Then one of the two keeps its
// good content: the one whose good content lacks the name, otherwise the later one by name. So
// no two good contents ever have a name in common.
func (d *Directory) settleNames(faults map[string]error) {
	type id struct {
		url  xds.TypeURL
		name string
	}
	names := slices.Sorted(maps.Keys(d.files))
	back := make(map[string]bool) // the files that keep their good content
	content := func(name string) []*section {
		if f := d.files[name]; f.next == nil || back[name] {
			return f.good
		}
		return d.files[name].next
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
					if declares(d.files[name].good, s.url, r.Name) {
						loser, winner = other, name
					}
					back[loser] = true
					faults[loser] = fmt.Errorf("%w: %q, also in %s", xds.ErrDuplicateName, r.Name, winner)
					return true
				}
			}
		}
		return false
	}
	for clash() { // each turn drops the new content of one file; good contents do not clash
	}
	for _, name := range names {
		if f := d.files[name]; f.next != nil && !back[name] {
			f.good, f.next = f.next, nil
		}
	}
}

func declares(sections []*section, url xds.TypeURL, name string) bool {
	return slices.ContainsFunc(sections, func(s *section) bool {
		return s.url == url && slices.ContainsFunc(s.resources, func(r *xds.Resource) bool { return r.Name == name })
	})
}

// merge returns the merged good content of all files. The origin's version of a type is set if only
// one file has the type; it is that file's version.
func (d *Directory) merge() *contents {
	c := &contents{types: make(map[xds.TypeURL]*typeContents)}
	sections := make(map[xds.TypeURL]int)
	for _, f := range d.files {
		for _, s := range f.good {
			t := c.types[s.url]
			if t == nil {
				t = &typeContents{version: s.version, resources: make(map[string]*xds.Resource)}
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

// publish makes c the served content, unless it equals the current one. The content of an unchanged
// type keeps its pointer.
func (d *Directory) publish(c *contents) {
	was, _ := d.load()
	if was != nil {
		same := fmt.Sprint(was.failed) == fmt.Sprint(c.failed) && len(was.types) == len(c.types)
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
		d.metrics.ConfigReceived(time.Now())
	}
	d.mu.Lock()
	d.current = c
	wake := d.changed
	d.changed = make(chan struct{})
	d.mu.Unlock()
	close(wake)
}

// load returns the served content, nil before the first scan, and a channel that is closed when it
// changes.
func (d *Directory) load() (*contents, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current, d.changed
}
