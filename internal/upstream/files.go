package upstream

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

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// fileOrigin is an origin that is a directory (P80). Its files are read once
// for all keys, which share the resources.
type fileOrigin struct {
	name, dir string
	log       *slog.Logger
	metrics   *telemetry.Metrics
	connected *telemetry.Gauge

	// shared: what the files say, and who waits for it to change.
	mu      sync.Mutex
	now     *contents
	changed chan struct{} // closed when now is replaced
	wrong   []FileFault   // with what is in the directory now; replaced as a whole

	// Owned by upkeep.
	files    map[string]*file
	dangling bool   // nothing but such a symlink is not settled
	reported string // the directory's last fault, so that it is told once
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

// file is one file's state.
type file struct {
	read  bool
	sum   [sha256.Size]byte // of the content read last
	fault error             // of that content
	good  []*section        // the last valid content that goes with all other files'
	// next is valid content that says a name which another file says: it waits
	// until it does not.
	next     []*section
	reported string
	dangles  time.Time // since when it is a symlink that leads nowhere; zero: it is not
}

// danglesFor is how long a symlink that leads nowhere is nothing to report, and no
// reason to be: Kubernetes swaps what ..data means first, and then removes the
// links to keys that are gone.
const danglesFor = time.Second

// newFileOrigin makes the origin of a directory: the path of a file: URL, with
// or without its empty host. A directory that is missing is an origin that
// cannot be reached, and is looked for again.
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
		changed: make(chan struct{}), files: make(map[string]*file),
	}, nil
}

// upkeep follows the directory. There is one watch, whatever the number of keys.
func (o *fileOrigin) upkeep(ctx context.Context) error {
	w := &watch{dir: o.dir}
	defer w.close()
	defer o.connected.Set(0)
	for {
		// Watched first and read then, no change falls between. What cannot be
		// watched is read all the same, now and then.
		watching := w.renew()
		settled, err := o.scan(w.writing)
		if err == nil {
			o.connected.Set(1)
			err = watching
		} else {
			o.connected.Set(0)
			o.show([]FileFault{{File: o.dir, Err: err}})
		}
		o.report(&o.reported, o.dir, err, o.refusal())
		var again time.Duration
		switch {
		case err != nil:
			again = retryEvery
		case !settled && o.dangling:
			again = danglesFor // unless the link goes before
		case !settled:
			again = w.whole()
		}
		if !w.wait(ctx, again) {
			return nil
		}
	}
}

// report logs a fault when it comes and when it goes, and not at each scan.
func (o *fileOrigin) report(last *string, path string, err error, text string) {
	switch {
	case err == nil && *last != "":
		o.log.Info("readable again", "file", path)
		*last = ""
	case err != nil && *last != err.Error():
		*last = err.Error()
		o.metrics.Reject(faultOf(err))
		o.log.Warn(text, "file", path, "error", err)
	}
}

// FileFault is what is wrong with a file of an origin.
type FileFault struct {
	File string
	Err  error
}

// CheckDirectory reads what an origin of a directory would serve, for a check
// before a start: until what is wrong is mended, nothing of the directory is
// served (P80).
func CheckDirectory(dir string) (out []FileFault) {
	o := &fileOrigin{dir: dir, files: make(map[string]*file)}
	_, faults, err := o.read(func(string) bool { return false })
	if err != nil {
		return []FileFault{{File: dir, Err: err}}
	}
	return o.placed(faults)
}

// placed are faults with their places, in the order of the files' names.
func (o *fileOrigin) placed(faults map[string]error) (out []FileFault) {
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		out = append(out, FileFault{File: filepath.Join(o.dir, name), Err: faults[name]})
	}
	return out
}

// maxFaults is how many faults of a directory are shown.
const maxFaults = 20

// show has admin show what is wrong with the directory.
func (o *fileOrigin) show(faults []FileFault) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wrong = faults[:min(len(faults), maxFaults)]
}

func (o *fileOrigin) faults() []FileFault {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrong
}

// refused logs a file's fault with its place.
func (o *fileOrigin) refused(f *file, path string, err error) {
	if err != nil && f.reported != err.Error() {
		for _, s := range f.good {
			o.metrics.Type(s.url).Updates[telemetry.Rejected].Inc()
		}
	}
	text := "file of an origin refused, its last valid content stays"
	if f.good == nil {
		text = "file of an origin refused, nothing of it is served"
	}
	o.report(&f.reported, path, err, text)
}

// never reports whether the origin has never had anything to give: until all
// files are valid at once it gives nothing, since what they leave out would be
// taken for removed.
func (o *fileOrigin) never() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now == nil || o.now.failed != nil
}

// refusal is what a fault of the directory means.
func (o *fileOrigin) refusal() string {
	if o.never() {
		return "directory of an origin not served, until all of it can be read"
	}
	return "directory of an origin not readable, what was read stays"
}

// scan reads all files and publishes what they say. It reports false if a file
// was being written meanwhile.
func (o *fileOrigin) scan(busy func(name string) bool) (settled bool, err error) {
	writing, faults, err := o.read(busy)
	if err != nil {
		if o.never() {
			o.publish(&contents{failed: err})
		}
		return true, err
	}
	o.show(o.placed(faults))
	for name, f := range o.files {
		if !slices.Contains(writing, name) {
			o.refused(f, filepath.Join(o.dir, name), faults[name])
		}
	}
	all := o.merge()
	// Of a type that a file says is empty there is one: without any, and with files that are
	// not valid yet, it is as if there were no files.
	none := o.never() || len(all.types) == 0
	if first := slices.Sorted(maps.Keys(faults)); none && len(first)+len(writing) > 0 {
		err := errWriting
		if len(first) > 0 {
			err = fmt.Errorf("%s: %w", first[0], faults[first[0]])
		}
		if o.never() {
			o.publish(&contents{failed: err})
		}
		return false, err
	}
	o.publish(all)
	return len(writing) == 0, nil
}

// read reads all files, and makes valid what can be. It returns the names of those
// that are being changed, and what is wrong with others. What is swapped meanwhile
// is read again: half of each would lack what moves from one file to another.
func (o *fileOrigin) read(busy func(name string) bool) (writing []string, faults map[string]error, err error) {
	there, err := o.list()
	for range maxReads {
		if err != nil {
			return nil, nil, err
		}
		writing, faults = o.readAll(there, busy)
		before := there
		if there, err = o.list(); err == nil && unmoved(before, there, writing) {
			break
		}
	}
	if err != nil {
		return nil, nil, err
	}
	o.settleNames(faults)
	return writing, faults, nil
}

// maxReads bounds how often files are read again, should they change all the time.
const maxReads = 3

// ErrNoFiles: a directory without any is one on which nothing is mounted, or that is yet to be
// filled, more likely than an origin that has nothing and would take all from the fleet. Who
// means that says so in a file.
var ErrNoFiles = errors.New("no file in it is served (.json, .yaml, .yml, .pb, .pb_text, .textproto); one with a type_url and no resources would say that there are none")

// list returns the files that are there by name; nil what cannot be reached. There is one.
func (o *fileOrigin) list() (map[string]os.FileInfo, error) {
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return nil, err
	}
	there := make(map[string]os.FileInfo, len(entries))
	for _, e := range entries {
		if name := e.Name(); served(name) && !e.IsDir() {
			there[name], _ = os.Stat(filepath.Join(o.dir, name)) // reading it tells why
		}
	}
	if len(there) == 0 {
		return nil, ErrNoFiles
	}
	return there, nil
}

// unmoved reports whether two lists are of the same files as they were, but for
// those that are being written.
func unmoved(a, b map[string]os.FileInfo, writing []string) bool {
	return maps.EqualFunc(a, b, func(x, y os.FileInfo) bool {
		if x == nil || y == nil {
			return x == y
		}
		return sameFile(x, y) || slices.Contains(writing, x.Name())
	})
}

func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func (o *fileOrigin) readAll(there map[string]os.FileInfo, busy func(name string) bool) (writing []string, faults map[string]error) {
	faults = make(map[string]error)
	never := o.never()
	var dangling []string
	for _, name := range slices.Sorted(maps.Keys(there)) {
		f := o.files[name]
		if f == nil {
			f = new(file)
			o.files[name] = f
		}
		err := errWriting
		if !busy(name) {
			err = o.readFile(name, f)
		}
		nowhere := errors.Is(err, fs.ErrNotExist) // though it is listed
		switch {
		case !nowhere:
			f.dangles = time.Time{}
		case f.dangles.IsZero():
			f.dangles = time.Now()
		}
		switch {
		case nowhere && !never && time.Since(f.dangles) < danglesFor:
			dangling = append(dangling, name)
		case errors.Is(err, errWriting):
			writing = append(writing, name)
		case err != nil:
			faults[name] = err
		}
	}
	maps.DeleteFunc(o.files, func(name string, f *file) bool {
		_, is := there[name]
		if !is && f.reported != "" {
			o.log.Info("file of an origin is gone, and what was wrong with it", "file", filepath.Join(o.dir, name))
		}
		return !is
	})
	o.dangling = len(dangling) > 0 && len(writing) == 0
	return append(writing, dangling...), faults
}

// maxFile is the largest file that is read; no response is larger (P59).
const maxFile = maxResponse

// errWriting: the file was written to while it was read.
var errWriting = errors.New("is being written")

// errSwapped: another file came in its place while it was read, which is whole.
var errSwapped = fmt.Errorf("%w anew", errWriting)

// readFile reads a file, and the one that comes in its place meanwhile.
func (o *fileOrigin) readFile(name string, f *file) error {
	err := errSwapped
	for n := 0; n < maxReads && errors.Is(err, errSwapped); n++ {
		err = o.readOnce(filepath.Join(o.dir, name), f)
	}
	return err
}

// readOnce reads a file. Valid content that is new becomes f.next; a fault is
// returned at each scan until the content is another.
func (o *fileOrigin) readOnce(path string, f *file) error {
	before, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !before.Mode().IsRegular():
		return errors.New("no regular file")
	case before.Size() > maxFile:
		return fmt.Errorf("larger than %d bytes", maxFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	after, err := os.Stat(path)
	if err != nil {
		return err
	}
	switch {
	case !os.SameFile(before, after):
		return errSwapped
	case !sameFile(before, after):
		return errWriting
	}
	sum := sha256.Sum256(raw)
	if !f.read || f.sum != sum {
		f.read, f.sum = true, sum
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

// settleNames makes files' new contents valid where no name is said twice, all
// new contents taken together: a resource may move from one file to another.
// Where a name is said twice, the file whose good content has it wins, else the
// first by name; the other keeps all that it had. So no two good contents ever
// say one name.
func (o *fileOrigin) settleNames(faults map[string]error) {
	type id struct {
		url  xds.TypeURL
		name string
	}
	names := slices.Sorted(maps.Keys(o.files))
	back := make(map[string]bool) // those that keep what they had
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
	for clash() { // each turn takes one file's new content back; good ones do not clash
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

// alive: what its files hold is known, and what they don't.

func (o *fileOrigin) connections() int { return o.connected.Value() }

func (o *fileOrigin) attach(s *line) session { return &fileSession{origin: o, stream: s} }
