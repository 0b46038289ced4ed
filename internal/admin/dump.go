package admin

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"xdsrelay/internal/admin/compare"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// DumpedResource is a resource in an answer to /config_dump or /resources.
type DumpedResource struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	// TypeVersion is the type's version at that moment, as a client with all of its resources has
	// it. OriginTypeVersion is the version that the origin gave, if it differs.
	TypeVersion       string `json:"type_version"`
	OriginTypeVersion string `json:"type_origin_version,omitempty"`
	// Version is the relay's version of the resource, made of its content. OriginVersion is the
	// origin's, if it gave one.
	Version       string  `json:"version"`
	OriginVersion string  `json:"origin_version,omitempty"`
	Bytes         int64   `json:"bytes"`
	TTL           float64 `json:"ttl_seconds,omitempty"`
	// Resource is the message without secrets. For a type that the program does not know it has
	// only type and size.
	Resource json.RawMessage `json:"resource,omitempty"`

	held *xds.Resource
}

func (d *DumpedResource) place() string { return d.Type + "\x00" + d.Name }

// dump answers /config_dump, listNames /resources.
func (s *Server) dump(r *http.Request) (int, any)      { return s.resources(r, true) }
func (s *Server) listNames(r *http.Request) (int, any) { return s.resources(r, false) }

func (s *Server) resources(r *http.Request, decode bool) (int, any) {
	q := r.URL.Query()
	key, given, bad := s.keyParam(r)
	switch {
	case bad != nil:
		return http.StatusBadRequest, *bad
	case !given:
		return fail(http.StatusBadRequest, "key: must be a key of /keys")
	}
	held, ok := s.opts.Keys.Snapshots(key)
	if !ok {
		return fail(http.StatusNotFound, s.notUsed(key))
	}
	if q.Has("type") {
		typ, err := parseType(q.Get("type"))
		if err != nil {
			return fail(http.StatusBadRequest, err.Error())
		}
		held = slices.DeleteFunc(held, func(s *snapshot.Snapshot) bool { return s.Type.URL != typ })
		if len(held) == 0 {
			return fail(http.StatusNotFound, fmt.Sprintf("key %s: the relay has no version of the type %s", key, typ))
		}
	}
	name, text := q.Get("name"), q.Get("find")
	if q.Has("name") {
		if name == "" {
			return fail(http.StatusBadRequest, "name: must not be empty")
		}
		held = slices.DeleteFunc(held, func(s *snapshot.Snapshot) bool { return s.Resource(name) == nil })
		if len(held) == 0 {
			return fail(http.StatusNotFound, fmt.Sprintf("key %s: the relay has no resource with the name %q", key, name))
		}
	}
	slices.SortFunc(held, func(a, b *snapshot.Snapshot) int { return strings.Compare(string(a.Type.URL), string(b.Type.URL)) })
	rows := func(after string) iter.Seq[*DumpedResource] {
		return func(yield func(*DumpedResource) bool) {
			goOn := true
			for i := 0; i < len(held) && goOn; i++ {
				each(held[i], name, func(r *xds.Resource) bool {
					d := DumpedResource{Type: string(held[i].Type.URL), Name: r.Name, held: r, TypeVersion: held[i].Version}
					if given := held[i].OriginVersion(); given != d.TypeVersion {
						d.OriginTypeVersion = given
					}
					goOn = d.place() <= after || !strings.Contains(d.Name, text) || yield(&d)
					return goOn
				})
			}
		}
	}
	return pagedFrom(r, rows, (*DumpedResource).place, func(d *DumpedResource) (any, bool) {
		d.describe(decode)
		return d, true
	})
}

// each calls f with the resource of a name, or with all, until f returns false.
func each(snap *snapshot.Snapshot, name string, f func(*xds.Resource) bool) {
	if name == "" {
		snap.Resources(f)
	} else if r := snap.Resource(name); r != nil {
		f(r)
	}
}

func (d *DumpedResource) describe(decode bool) {
	r := d.held
	d.Aliases, d.Version, d.OriginVersion = r.Aliases, r.Version.String(), r.OriginVersion
	d.Bytes, d.TTL = r.Size(), r.TTL().Seconds()
	if decode {
		d.Resource = compare.JSON(r)
	}
}
