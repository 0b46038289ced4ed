package content

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// script is a Content of clusters and endpoints that a text changes. A line is one or more events,
// separated by ";", and after "->" what is seen then. Events:
//
//	names a b             the key subscribes to these names, and to no other
//	wildcard, no wildcard it subscribes to the wildcard, or no longer
//	update a=1 -b         a response to the names: a has another content, b is gone
//	state a=1             a response to the wildcard
//	part a=1 -b           a part of a delta origin's answer to the wildcard
//	old part a=1          the same, for the subscription to the wildcard before this one
//	open, closed          a stream was opened, or it ended
//	ended                 the stream's do_not_cache resources end with it
//	ack                   a client acknowledged the newest generation
//	publish               the newest content is published
//	store                 the newest content is in the store
//	serve                 what is stored is served
//	5s                    time passes
//
// With "endpoints" before it, an event is of endpoints, otherwise of clusters. "a>x=1" is a cluster that
// leads to the endpoints x, "a|b=1" has the alias b, "a=1@5s" has a TTL, "a=1@never" must not be cached,
// and "!a" is an error in place of a. What is seen:
//
//	a=1, *a=1, ~a=1       by a client with the names, with the wildcard, or that resumes with the wildcard.
//	                      "-" is absent, "?" pending
//	complete, settled     the answer to the wildcard. "not complete", ...
//	urgent                what changed is to be published at once
//	error a               there is an error in place of a
//	has a                 there is something to serve for a
//	holds a,b             all resources
//	requests a,b          the names of endpoints in requests
//	next 5s               when time alone changes something
//	version 2             the version of clusters: the number of the response
type script struct {
	t                   *testing.T
	content             *Content
	clusters, endpoints *TypeContent
	delay               time.Duration
	now                 time.Time
	stream              Stream
	responses           int
	ended               uint64 // the subscription to the wildcard that ended last
}

// runScripts runs scripts by name, with a delay of deletions and with SotW origins, or not.
func runScripts(t *testing.T, sotw bool, delay time.Duration, scripts map[string]string) {
	for name, text := range scripts {
		t.Run(name, func(t *testing.T) {
			s := &script{t: t, content: New(sotw), delay: delay, now: time.Now()}
			s.stream = Stream{1, s.now, true}
			s.clusters = s.content.Add(xds.TypeOf(xds.ClusterType), new(notes))
			s.endpoints = s.content.Add(xds.TypeOf(xds.EndpointType), new(notes))
			for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
				events, seen, _ := strings.Cut(line, "->")
				for _, event := range strings.Split(events, ";") {
					s.do(strings.Fields(event))
				}
				if err := s.content.Check(); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				for _, want := range strings.Split(seen, ";") {
					if got := s.see(strings.TrimSpace(want)); got != strings.TrimSpace(want) {
						t.Errorf("%s: %s", strings.TrimSpace(line), got)
					}
				}
			}
		})
	}
}

func (s *script) do(words []string) {
	of := s.clusters
	if words[0] == "endpoints" {
		of, words = s.endpoints, words[1:]
	}
	u := snapshot.Update{Type: of.typ.URL, Origin: "o", Wildcard: words[0] != "update", Received: s.now}
	if u.Wildcard {
		u.WildcardID = of.WildcardID()
	}
	if words[0] == "old" {
		words, u.WildcardID = words[1:], s.ended
	}
	switch words[0] {
	case "names":
		s.subscribe(of, xds.NewNameSet(words[1:]...), of.wildcard)
	case "wildcard":
		s.subscribe(of, of.names, true)
		of.WildcardAssigned(s.now)
	case "no":
		s.ended = of.WildcardID()
		s.subscribe(of, of.names, false)
	case "update", "state", "part":
		s.responses++
		u.Version, u.Partial = fmt.Sprint(s.responses), words[0] == "part"
		for _, spec := range words[1:] {
			switch name := spec[1:]; spec[0] {
			case '-':
				u.Removed = append(u.Removed, name)
			case '!':
				u.Errors = append(u.Errors, &xds.ResourceError{Name: name})
			default:
				u.Changed = append(u.Changed, s.resource(of.typ, spec))
			}
		}
		of.Apply(u, s.stream, s.now, s.delay)
	case "open":
		s.stream = Stream{s.stream.Number + 1, s.now, true}
	case "closed":
		s.stream.Open = false
	case "ended":
		for _, u.Wildcard = range []bool{false, true} {
			of.Apply(snapshot.Update{Type: of.typ.URL, Wildcard: u.Wildcard, Ended: true}, s.stream, s.now, s.delay)
		}
	case "publish":
		s.content.Publish(1)
	case "store":
		of.SetStored(of.Newest())
	case "serve":
		of.ApplyStored()
	case "ack":
		of.Acked(of.Newest().Gen)
	default:
		d, err := time.ParseDuration(words[0])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
	}
	for _, ty := range s.content.types {
		ty.Expire(s.now)
		ty.Remove(s.now, s.delay)
		if ty.wildcard {
			ty.Complete(s.stream, s.now)
		}
	}
}

func (s *script) subscribe(of *TypeContent, names *xds.NameSet, wildcard bool) {
	var forgotten []string
	for name, added := range of.names.Diff(names) {
		if !added {
			forgotten = append(forgotten, name)
		}
	}
	of.SetSubscribed(names, wildcard, forgotten)
}

// resource makes what a specification such as "a=1", "a>x=1", "a|b=1" or "a=1@5s" says.
func (s *script) resource(typ xds.Type, spec string) *xds.Resource {
	spec, ttl, _ := strings.Cut(spec, "@")
	spec, value, _ := strings.Cut(spec, "=")
	spec, service, follows := strings.Cut(spec, ">")
	names := strings.Split(spec, "|")
	body := new(anypb.Any)
	if follows {
		cluster := &clusterv3.Cluster{Name: names[0], AltStatName: value, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: service}}
		if err := body.MarshalFrom(cluster); err != nil {
			s.t.Fatal(err)
		}
	} else if err := proto.Unmarshal(xdstest.NamedAny(string(typ.URL), names[0], value), body); err != nil {
		s.t.Fatal(err)
	}
	wire, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(typ.URL), Resources: []*discoveryv3.Resource{{
		Name: names[0], Aliases: names[1:], Resource: body, CacheControl: &discoveryv3.Resource_CacheControl{DoNotCache: ttl == "never"}}}})
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := xds.ParseResponse(xds.Delta, wire)
	if err != nil {
		s.t.Fatal(err)
	}
	r := response.Resources[0].Take(typ, nil)
	if d, err := time.ParseDuration(ttl); err == nil {
		return r.RenewTTL(d, s.now)
	}
	return r
}

// see returns what is seen in place of want.
func (s *script) see(want string) string {
	of, prefix := s.clusters, ""
	if rest, is := strings.CutPrefix(want, "endpoints "); is {
		of, want, prefix = s.endpoints, rest, "endpoints "
	}
	newest, no := of.Newest(), map[bool]string{false: "not "}
	switch what := strings.Fields(strings.TrimPrefix(want, "not ")); what[0] {
	case "complete":
		return no[newest.AnswersWildcard(&snapshot.Subscription{Wildcard: true, Resumes: true})] + "complete"
	case "settled":
		return no[newest.Settled] + "settled"
	case "urgent":
		_, urgent := s.content.Unpublished()
		return no[urgent] + "urgent"
	case "error":
		return no[newest.Error(&snapshot.Subscription{Names: of.names}, what[1]) != nil] + "error " + what[1]
	case "has":
		return no[of.Has(&snapshot.Subscription{Names: xds.NewNameSet(what[1])})] + "has " + what[1]
	case "holds":
		var names []string
		for r := range newest.Resources {
			names = append(names, r.Name)
		}
		return strings.TrimSpace("holds " + strings.Join(names, ","))
	case "requests":
		return strings.TrimSpace("requests " + strings.Join(slices.Collect(s.endpoints.ToRequest().All()), ","))
	case "next":
		return "next " + s.content.Next(s.delay).Sub(s.now).String()
	case "version":
		return prefix + "version " + newest.Version
	}
	name, _, _ := strings.Cut(want, "=")
	sub := &snapshot.Subscription{Names: of.names}
	if bare := strings.TrimLeft(name, "*~"); bare != name {
		sub = &snapshot.Subscription{Wildcard: true, Resumes: name[0] == '~'}
		return prefix + name[:1] + shown(newest, sub, bare)
	}
	return prefix + shown(newest, sub, name)
}
