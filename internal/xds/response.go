package xds

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Response is a DiscoveryResponse or a DeltaDiscoveryResponse as an origin
// sent it, cut into resources without decoding them. Raws alias the message.
type Response struct {
	TypeURL   TypeURL
	Nonce     string
	Version   string // version_info or system_version_info
	Resources []Raw
	Removed   []string         // delta only
	Errors    []*ResourceError // copied; of several for a name the last
}

// responseFields are the numbers of both messages; they differ in one.
const (
	respVersion   protowire.Number = 1
	respResources protowire.Number = 2
	respTypeURL   protowire.Number = 4
	respNonce     protowire.Number = 5
	respRemoved   protowire.Number = 6 // incremental
)

var (
	respControlPlane = [...]protowire.Number{SotW: 6, Delta: 7}
	respErrors       = [...]protowire.Number{SotW: 7, Delta: 9}
)

// ParseResponse cuts msg. On a fault by P18 or P28 it returns the first fault,
// and a Response with the fields by which to NACK: TypeURL, Nonce, Version.
func ParseResponse(v Variant, msg []byte) (*Response, error) {
	r := new(Response)
	var raw [][2][]byte // a resource's whole field, and its value
	var refused error   // by resource_errors; all fields are read first, to NACK by
	err := eachField(msg, func(num protowire.Number, typ protowire.Type, val, whole []byte) error {
		if typ != protowire.BytesType {
			return nil
		}
		removed := v == Delta && num == respRemoved
		if (num == respVersion || num == respTypeURL || num == respNonce || removed) && !validName(val) {
			return errUTF8 // requests to this origin, or responses to clients, could not hold it
		}
		if num == respErrors[v] {
			e, err := cutError(val)
			if err == nil {
				r.Errors = append(r.Errors, e)
			} else if refused == nil {
				refused = err
			}
			return nil
		}
		switch num {
		case respVersion:
			r.Version = string(val)
		case respResources:
			raw = append(raw, [2][]byte{whole, val})
		case respTypeURL:
			r.TypeURL = TypeURL(val)
		case respNonce:
			r.Nonce = string(val)
		case respRemoved:
			if removed {
				r.Removed = append(r.Removed, string(val))
			}
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if refused != nil {
		return r, refused
	}
	t := TypeOf(r.TypeURL)
	seen := make(map[string]bool, len(raw)+len(r.Removed))
	r.Resources = make([]Raw, 0, len(raw))
	for i, w := range raw {
		var res Raw
		if v == Delta {
			res, err = cutDelta(t, w[1])
		} else {
			res, err = cutSotW(t, w[0], w[1])
		}
		if errors.Is(err, ErrNameless) { // others say whose they are
			return r, fmt.Errorf("resources[%d]: %w", i, err)
		}
		if err != nil {
			return r, err
		}
		if seen[res.Name] {
			return r, fmt.Errorf("%w: %q", ErrTwice, res.Name)
		}
		seen[res.Name] = true
		r.Resources = append(r.Resources, res)
	}
	for _, name := range r.Removed {
		if len(name) > MaxNameBytes {
			return r, ErrLongName
		}
		if seen[name] {
			return r, fmt.Errorf("%w: %q", ErrBoth, name)
		}
	}
	return r, nil
}

// fieldSize is the size of a bytes field with a number below 16.
func fieldSize(n int) int { return 1 + protowire.SizeBytes(n) }

func appendString(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

// AppendNonce appends the nonce field that completes a body.
func AppendNonce(dst, nonce []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, respNonce, protowire.BytesType), nonce)
}
