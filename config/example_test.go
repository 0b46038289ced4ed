package config_test

import (
	"fmt"

	"xdsrelay/config"
)

// A fault has its place, and says what is expected.
func ExampleParse() {
	_, err := config.Parse("relay.yaml", []byte(`upstream:
  origins: [{address: "istiod:15012"}]
  variant: both
downstream: {drian: 10m}
`), nil)
	fmt.Println(err)
	// Output:
	// relay.yaml:3:12: upstream.variant: must be delta or sotw, but is "both"
	// relay.yaml:4:14: downstream.drian: unknown key; did you mean drain?
}
