package xds

// Split cuts the body of a delta response into bodies of at most limit bytes: resources first, then
// removals (P38). A body with one resource may be larger. The body of a SotW response, which clients
// take as a whole, is not cut.
func (b *ResponseBody) Split(limit int) []*ResponseBody {
	if b.Variant == SotW || b.Size() <= limit {
		return []*ResponseBody{b}
	}
	empty := ResponseBody{ResourceFormat: b.ResourceFormat, Type: b.Type, Version: b.Version, Identifier: b.Identifier, Now: b.Now}
	var out []*ResponseBody
	size := limit
	// part returns the body that has room for an element of n bytes.
	part := func(n int) *ResponseBody {
		if size += n; size > limit {
			one := empty
			out, size = append(out, &one), empty.Size()+n
		}
		return out[len(out)-1]
	}
	for _, r := range b.Resources {
		p := part(b.resourceFieldSize(r))
		p.Resources = append(p.Resources, r)
	}
	for _, r := range b.Heartbeats {
		p := part(fieldSize(b.elementSize(r, false)))
		p.Heartbeats = append(p.Heartbeats, r)
	}
	for _, e := range b.Errors {
		p := part(fieldSize(len(e.wire)))
		p.Errors = append(p.Errors, e)
	}
	for _, name := range b.Removed {
		p := part(fieldSize(len(name)))
		p.Removed = append(p.Removed, name)
	}
	return out
}
