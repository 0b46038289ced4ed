package upstream

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
)

// talker is what is said on one gRPC stream, in one of the variants. It does no
// I/O and knows no time but the one given to it; it has one owner.
//
// Whoever drives it has at most one request on its way to the transport: what
// changes meanwhile is merged into the next.
type talker interface {
	// want takes over the newest interest, and what was let go and wanted again
	// since the last one. It reports false if this stream cannot carry it.
	want(i *xds.Interest, lapsed lapses) bool
	// next returns the next request to write, nil if there is nothing to say by
	// now.
	next(now time.Time) *request
	// heldUntil is when there may be something to say that is held back for now
	// (P18); zero if nothing is.
	heldUntil() time.Time
	// received judges a response. What is to be taken is then confirmed by
	// taken, before the next response is received.
	received(r *xds.Response, fault error, now time.Time) (verdict, error)
	// taken says that the update was applied: the response is acknowledged,
	// whatever clients say (P18).
	taken(r *xds.Response)
}

// verdict on a response.
type verdict struct {
	take bool
	// asked is what the origin had been asked for, if take.
	asked asked
	// took is the version_info last taken (SotW); sound says that no response of
	// the type was refused since.
	took  string
	sound bool
	// foreign are the names held of which this origin has not given what is held.
	foreign *xds.NameSet
	// unrequested: the type was never requested on this stream. To acknowledge
	// it would be to request it.
	unrequested bool
	// refusals of the type in a row, this one included, if it was refused; news
	// says that this one is to be told of, and not a repetition.
	refusals int
	news     bool
}

// asked is what was asked of one type.
type asked struct {
	wildcard bool
	names    *xds.NameSet
}

func (a asked) empty() bool { return !a.wildcard && a.names.Len() == 0 }

func (a asked) equal(b asked) bool {
	return a.wildcard == b.wildcard && a.names.Equal(b.names)
}

// part is what of a snapshot answers a: what came for the names says nothing of
// the wildcard, nor the other way round (P50).
func (a asked) part(s *xds.Snapshot) xds.Part { return s.Part(a.wildcard) }

// covers are the resources held that answer a, in order of names.
func (a asked) covers(s *xds.Snapshot) iter.Seq[*xds.Resource] {
	part := a.part(s)
	if a.wildcard {
		return part.Resources
	}
	return func(yield func(*xds.Resource) bool) { part.Covered(a.names, yield) }
}

// talkOptions are what a talk has to know of its surroundings.
type talkOptions struct {
	origin     string
	node       []byte // for the first request (P58)
	held       func(xds.TypeURL) *xds.Snapshot
	memory     memory
	maxRequest int
	// damping of refusals, and its jitter: a number up to the one given.
	damping Backoff
	random  func(time.Duration) time.Duration
}

// talk is what both variants share.
type talk struct {
	talkOptions
	nonces   bool        // requests repeat the newest nonce
	types    []*typeTalk // in the order of their first use
	byURL    map[xds.TypeURL]*typeTalk
	nodeSent bool
}

// typeTalk is one type of a talk.
type typeTalk struct {
	typ       xds.Type
	requested bool
	// asked is what the last request made of it, want what it should be.
	asked, want asked
	// ended: the wildcard was asked for, and nobody wants it any more: asked is
	// empty since. In SotW the origin stays asked for it, in incremental only
	// while ending.
	ended, ending bool
	// lapsed are names of both that were let go in between: forgotten, so that
	// they have to be dropped and asked for again; or that clients asked for again
	// (P18).
	lapsed []string
	// judging: a response was received and not taken yet.
	judging bool
	// replies that are due: refusals and, in incremental, acknowledgements.
	replies []reply
	// refusals in a row since the last response that was taken, and the fault
	// of the last.
	refusals int
	fault    string
	sotw     sotwState
}

func newTalk(o talkOptions) talk {
	return talk{talkOptions: o, byURL: make(map[xds.TypeURL]*typeTalk)}
}

// want: a change between names and wildcard takes a new stream. In SotW a
// wildcard cannot be ended otherwise (P64), and in both variants nobody could
// tell whether the response that comes next still answers the names or already
// the wildcard, which decides what is absent; besides, origins keep an account
// of what they sent on a stream, and leave that out of the answer to the new
// question (go-control-plane does, when a wildcard is unsubscribed).
//
// Where nothing of the type is wanted after the wildcard, no question is open:
// the stream goes on, since others use it (P16), and what still comes is
// dropped. It is opened anew once the type is wanted again; or when nothing is
// wanted at all.
func (t *talk) want(i *xds.Interest, lapsed lapses) bool {
	for _, in := range i.Types {
		if t.byURL[in.Type] == nil && !empty(in) {
			tt := &typeTalk{typ: xds.TypeOf(in.Type)}
			t.byURL[in.Type] = tt
			t.types = append(t.types, tt)
		}
	}
	fits, ended, wanted := true, false, false
	for _, tt := range t.types {
		in := i.Of(tt.typ.URL)
		tt.want = asked{wildcard: in.Wildcard, names: in.Names}
		fits = t.carries(tt, lapsed[tt.typ.URL]) && fits
		ended = ended || tt.ended
		wanted = wanted || !tt.want.empty()
	}
	return t.compact() && fits && (wanted || !ended)
}

// maxSpent bounds the types of a stream that are remembered though nobody wants
// them any more.
const maxSpent = 64

// compact forgets what earlier streams brought of types that nobody wants any more.
// This stream remembers them: whether the wildcard ended, the newest nonce (P64), and
// that a late response is to be acknowledged. It reports false if there are too many
// of them, so that the stream is opened again.
func (t *talk) compact() bool {
	maps.DeleteFunc(t.memory, func(typ xds.TypeURL, _ *remembered) bool {
		return t.byURL[typ] == nil || t.byURL[typ].spent()
	})
	spent := 0
	for _, tt := range t.types {
		if tt.spent() {
			spent++
		}
	}
	return spent <= maxSpent
}

// spent: nothing of the type is wanted or asked, and nothing remains to be said.
func (t *typeTalk) spent() bool {
	return t.want.empty() && t.asked.empty() && !t.ending && !t.judging &&
		len(t.lapsed) == 0 && len(t.replies) == 0 && !t.sotw.ackDue
}

// carries takes over what tt is to want, and reports whether this stream can
// carry it.
func (t *talk) carries(tt *typeTalk, l *lapse) bool {
	if !tt.requested {
		return true
	}
	if l != nil {
		for name := range l.names {
			if tt.want.names.Has(name) && tt.asked.names.Has(name) {
				tt.lapsed = append(tt.lapsed, name)
			}
		}
	}
	switch {
	case tt.want.empty():
		if tt.asked.wildcard {
			tt.asked, tt.ended, tt.ending = asked{}, true, !t.nonces
		}
		return true
	case tt.ended, tt.asked.wildcard != tt.want.wildcard:
		return false
	}
	return !tt.asked.wildcard || l == nil || !l.wildcard
}

// errGarbage ends the stream: what cannot be attributed cannot be refused.
var errGarbage = errors.New("a response without readable type and nonce")

func (t *talk) received(r *xds.Response, fault error, now time.Time) (verdict, error) {
	if errors.Is(fault, xds.ErrUnreadable) && (r.TypeURL == "" || r.Nonce == "") {
		return verdict{}, fmt.Errorf("%w: %w", errGarbage, fault)
	}
	tt := t.byURL[r.TypeURL]
	if tt == nil || !tt.requested {
		return verdict{unrequested: true}, nil
	}
	if fault != nil {
		return t.refuse(tt, r.Nonce, fault, now), nil
	}
	tt.judging = true
	v := verdict{take: true, asked: tt.asked, took: tt.sotw.version, sound: tt.refusals == 0}
	if m := t.memory[r.TypeURL]; m != nil && m.origin == t.origin {
		v.foreign = m.foreign
	}
	return v, nil
}

// took remembers what the origin has given, or taken away, and returns what else
// it remembers of the type.
func (t *talk) took(tt *typeTalk, r *xds.Response) *remembered {
	m := t.memory[r.TypeURL]
	if m == nil || m.origin != t.origin || m.wildcard != tt.asked.wildcard {
		m = t.recall(r.TypeURL, tt.asked.wildcard, tt.asked.part(t.held(r.TypeURL)))
	}
	if m.foreign.Len() > 0 {
		names := make([]string, 0, len(r.Resources)+len(r.Removed))
		for i := range r.Resources {
			if r.Resources[i].HasBody() {
				names = append(names, r.Resources[i].Name)
			}
		}
		m.foreign = m.foreign.Remove(append(names, r.Removed...)...)
	}
	return m
}

// recall returns what is remembered of a type from earlier streams, as far as
// it is this origin's and of the same question (P55). An origin that leaves no
// memory, as a directory, shows in the part that is held. Who came back may find
// what is of neither: the other brought a part. And what is held though this
// stream remembers nothing came over another one (P50): the origin is to say all
// of it again, or nobody could tell when it has.
func (t *talk) recall(typ xds.TypeURL, wildcard bool, part xds.Part) *remembered {
	r := t.memory[typ]
	other := part.Origin() != "" && part.Origin() != t.origin
	if r == nil || r.origin != t.origin || r.wildcard != wildcard || other {
		r = &remembered{origin: t.origin, wildcard: wildcard}
		var names []string
		for res := range part.Resources {
			names = append(names, res.Name)
		}
		r.foreign = xds.NewNameSet(names...)
		t.memory[typ] = r
	}
	return r
}

// memory is what survives a stream, of every type that is wanted.
type memory map[xds.TypeURL]*remembered

type remembered struct {
	// origin is whose the rest is, and wildcard what had been asked.
	origin   string
	wildcard bool
	// foreign are the names held whose version is not, or not surely, this
	// origin's: it has not sent them since it took over from another.
	foreign *xds.NameSet
	// acked is what had been asked for when the response came that was last
	// taken, and version its version_info (SotW).
	acked   asked
	version string
}

// diff returns the names to add and to take away to get from a to b.
func diff(a, b *xds.NameSet) (add, drop []string) {
	for name, added := range a.Diff(b) {
		if added {
			add = append(add, name)
		} else {
			drop = append(drop, name)
		}
	}
	return add, drop
}

// request is a message to write, in two parts; tail may be shared.
type request struct {
	typ        xds.TypeURL
	head, tail []byte
	refusal    string // why it is a NACK
	oversized  bool   // over max_request_bytes (P59)
	leftOut    int    // versions that did not fit
}

// appendText appends a string field.
func appendText(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// invalidArgument is the code in the error_detail of a NACK.
const invalidArgument = 3

// appendStatus appends a google.rpc.Status.
func appendStatus(b []byte, num protowire.Number, message string) []byte {
	var s []byte
	s = protowire.AppendVarint(protowire.AppendTag(s, 1, protowire.VarintType), invalidArgument)
	s = appendText(s, 2, message)
	return appendBytes(b, num, s)
}

// appendNode appends the node to a stream's first request (P58).
func (t *talk) appendNode(b []byte, num protowire.Number) []byte {
	if t.nodeSent {
		return b
	}
	t.nodeSent = true
	return appendBytes(b, num, t.node)
}
