//go:build linux

package loadtest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"xdsrelay/internal/xdstest"
)

// manyRules is how many rules of measureRules match no node. One more rule matches all.
const manyRules = 200

// measureRules measures the cost of many rules while clients connect, each with a node of its own, and
// when a reload replaces the rules: rules that compare, and rules with a regular expression.
func measureRules(b *bench) {
	for range min(b.rounds, 5) {
		for _, rules := range []struct{ name, match string }{
			{"equal", `node.id == "team-%d"`}, {"matches", `node.id.matches("^team-%d-[a-z]+$")`},
		} {
			file := filepath.Join(b.TempDir(), "rules.yaml")
			write := func(first int) {
				var text strings.Builder
				for i := range manyRules {
					fmt.Fprintf(&text, "- {match: '"+rules.match+"', key: node.id}\n", first+i)
				}
				if err := os.WriteFile(file, []byte(text.String()+"- key: node.cluster\n"), 0o600); err != nil {
					b.Fatal(err)
				}
			}
			write(0)
			c := b.start(nameRelay, xdstest.Config{"aggregation.file": file})
			c.first()
			w := c.join(crowdSettings{load: b.load, later: true})
			before := c.settle()
			w.start()
			c.await(w, 0)
			connected := c.settle()

			write(manyRules)
			resp, err := http.Post("http://"+c.admin+"/reload", "", nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				b.Fatalf("reload: %v %+v", err, resp)
			}
			_ = resp.Body.Close()
			reloaded := c.settle()
			each := float64(b.load.Clients)
			b.print(rules.name, value{float64(connected-before) / each, "connect-ns/client"}, value{float64(reloaded-connected) / each, "reload-ns/client"})
			w.close()
			c.Stop()
		}
	}
}
