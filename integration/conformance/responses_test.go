package conformance

import "testing"

// P30: a full-state SotW response holds everything, also when something goes.
// P32: an incremental one holds the change.
func TestP30_P32_FullStateAndChanges(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		for _, k := range []kind{cds, lds, srds} {
			c.site.put(c, k, "a=1", "b=1")
			cl := c.client("one")
			cl.sub(k)
			cl.take(k, "a=1 b=1")
			c.site.put(c, k, "a=2")
			cl.takeFull(k, "a=2 b=1", "a=2")
			c.site.put(c, k, "-b", "c=1")
			cl.takeFull(k, "a=2 c=1", "c=1 -b")
			c.site.put(c, k, "-a", "-c")
			cl.takeFull(k, "", "-a -c")
			cl.quiet(k)
		}
	})
}
