package memberread

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"xdsrelay/internal/cluster"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/telemetry"
)

// The method's request is the path with the query, and its response the body. Headers have the rest of
// the answer.
const (
	service      = "xdsrelay.Members"
	method       = "Read"
	statusHeader = "x-xdsrelay-status"
	typeHeader   = "x-xdsrelay-content-type"
)

const (
	// Timeout is how long another member may take to answer.
	Timeout = 2 * time.Second
	// maxAnswer bounds an answer in bytes. A page has a few megabytes.
	maxAnswer = 64 << 20
)

// Reader reads the admin API of members, and lets them read this relay's.
type Reader struct {
	Cluster     interface{ Members() []cluster.Member } // as cluster.Cluster has them
	Credentials credentials.TransportCredentials
	Local       func() http.Handler
}

// Members returns all members that are known.
func (r *Reader) Members() []cluster.Member { return r.Cluster.Members() }

// reply is the answer to a GET.
type reply struct {
	status int
	kind   string // its Content-Type
	body   []byte
}

// ServeHTTP answers a path /members/NAME/REST with what the member answers to REST. The status is 504 if
// the member does not answer.
func (r *Reader) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(req.URL.EscapedPath(), "/members/"), "/")
	name, _ = url.PathUnescape(name) // a parsed URL has no faults
	uri := "/" + rest
	if q := req.URL.RawQuery; q != "" {
		uri += "?" + q
	}
	ctx, cancel := context.WithTimeout(req.Context(), Timeout)
	defer cancel()
	out, err := r.read(ctx, name, uri)
	if err != nil {
		body, _ := json.Marshal(map[string]string{"error": err.Error()}) // text has an encoding
		out = &reply{http.StatusGatewayTimeout, "application/json", body}
		if errors.Is(err, errUnknown) {
			out.status = http.StatusNotFound
		}
	}
	w.Header().Set("Content-Type", out.kind)
	w.WriteHeader(out.status)
	_, _ = w.Write(out.body) // an error means that the client has gone
}

var errUnknown = errors.New("no member has this name")

// read reads from a member. It connects for this one request, because operators ask seldom.
func (r *Reader) read(ctx context.Context, name, uri string) (*reply, error) {
	alive := func(m cluster.Member) bool {
		return m.State == telemetry.MemberAlive || m.State == telemetry.MemberUnusable
	}
	named := slices.DeleteFunc(slices.Clone(r.Members()), func(m cluster.Member) bool { return m.Name != name })
	running := slices.DeleteFunc(slices.Clone(named), func(m cluster.Member) bool { return !alive(m) })
	switch {
	case len(named) == 0:
		return nil, fmt.Errorf("%q: %w", name, errUnknown)
	case len(running) > 1: // the answer of one would hide the other
		return nil, fmt.Errorf("%d members have the name %s", len(running), name)
	}
	switch m := append(running, named[0])[0]; {
	case m.Self:
		return r.local(ctx, uri), nil
	case !alive(m):
		return nil, fmt.Errorf("member %s is %s", name, m.State)
	default:
		if m.Address == "" { // it did not say it in words that this relay understands
			return nil, fmt.Errorf("member %s is unusable: %s", name, m.Problem)
		}
		out, err := r.remote(ctx, m.Address, uri)
		if err != nil {
			return nil, fmt.Errorf("member %s does not answer: %s", name, plain(err))
		}
		return out, nil
	}
}

// plain is the text of an error of grpc without the parts that say nothing to an operator.
func plain(err error) string {
	if status.Code(err) == codes.DeadlineExceeded {
		return "nothing within " + Timeout.String()
	}
	text := status.Convert(err).Message()
	if _, cause, ok := strings.Cut(text, `desc = "`); ok {
		text = strings.TrimPrefix(strings.TrimSuffix(cause, `"`), "transport: ")
	}
	return strings.TrimPrefix(text, "Error while dialing: ")
}

func (r *Reader) remote(ctx context.Context, address, uri string) (*reply, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(r.Credentials.Clone()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // it has no requests any more
	var header metadata.MD
	body := new(wrapperspb.BytesValue)
	if err := conn.Invoke(ctx, "/"+service+"/"+method, wrapperspb.String(uri), body, grpc.Header(&header)); err != nil {
		return nil, err
	}
	codes, kinds := header.Get(statusHeader), header.Get(typeHeader)
	if len(codes) != 1 || len(kinds) != 1 {
		return nil, errors.New("the answer is not that of a relay")
	}
	code, err := strconv.Atoi(codes[0])
	return &reply{code, kinds[0], body.Value}, err
}

// Register registers the method with the server for members, which was made with listener.Credentials.
func (r *Reader) Register(s grpc.ServiceRegistrar) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: service, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: method, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			if err := listener.AdmitMember(ctx); err != nil {
				return nil, err
			}
			uri := new(wrapperspb.StringValue)
			if err := decode(uri); err != nil {
				return nil, err
			}
			return r.answer(ctx, uri.Value)
		}}},
	}, r)
}

func (r *Reader) answer(ctx context.Context, uri string) (*wrapperspb.BytesValue, error) {
	out := r.local(ctx, uri)
	err := grpc.SetHeader(ctx, metadata.Pairs(statusHeader, strconv.Itoa(out.status), typeHeader, out.kind))
	return wrapperspb.Bytes(out.body), err
}

// memberKey marks the context of a request that this relay makes itself for a member.
type memberKey struct{}

// ForMember reports whether a request to the admin API is one of a member of the cluster. It needs no
// token, and may only read values: nothing that goes on for long, and nothing of further members.
func ForMember(ctx context.Context) bool { return ctx.Value(memberKey{}) != nil }

// local reads from this relay's admin API.
func (r *Reader) local(ctx context.Context, uri string) *reply {
	req, err := http.NewRequestWithContext(context.WithValue(ctx, memberKey{}, true), http.MethodGet, uri, nil)
	if err != nil {
		return &reply{http.StatusBadRequest, "text/plain", []byte(err.Error())}
	}
	w := &recorder{header: make(http.Header)}
	r.Local().ServeHTTP(w, req)
	return &reply{w.status, w.header.Get("Content-Type"), w.body.Bytes()}
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
