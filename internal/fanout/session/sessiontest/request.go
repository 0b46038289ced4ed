package sessiontest

import (
	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
)

// Request is a request of a client, without node, type and nonce.
type Request struct {
	Names, Unsubscribe []string
	Initial            map[string]string // initial_resource_versions
	Version            string
	Nacked             bool // it has error_detail
}

// Wire encodes the request for the variant.
func (r Request) Wire(v xds.Variant) []byte {
	var b []byte
	str := func(num protowire.Number, s string) {
		b = protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
	}
	const detail = "\x08\x03\x12\x07refused"
	for _, n := range r.Names {
		str(3, n)
	}
	if v == xds.SotW {
		str(1, r.Version)
		if r.Nacked {
			str(6, detail)
		}
		return b
	}
	for _, n := range r.Unsubscribe {
		str(4, n)
	}
	for n, ver := range r.Initial {
		var e []byte
		e = protowire.AppendString(protowire.AppendTag(e, 1, protowire.BytesType), n)
		e = protowire.AppendString(protowire.AppendTag(e, 2, protowire.BytesType), ver)
		str(5, string(e))
	}
	if r.Nacked {
		str(7, detail)
	}
	return b
}
