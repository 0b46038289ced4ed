package aggregator

import "fmt"

// The schema of xds-relay's KeyerConfiguration in YAML (aggregation/v1/aggregation.proto). A
// pointer is a member of a oneof, or an optional message.
type keyerFile struct {
	Fragments []fragmentFile `yaml:"fragments"`
}

type fragmentFile struct {
	Rules []fragmentRuleFile `yaml:"rules"`
}

type fragmentRuleFile struct {
	Match  *matchFile  `yaml:"match"`
	Result *resultFile `yaml:"result"`
}

type matchFile struct {
	And  *matchSetFile  `yaml:"and_match"`
	Or   *matchSetFile  `yaml:"or_match"`
	Not  *matchFile     `yaml:"not_match"`
	Any  *bool          `yaml:"any_match"`
	Type *typeMatchFile `yaml:"request_type_match"`
	Node *nodeMatchFile `yaml:"request_node_match"`
}

type matchSetFile struct {
	Rules []matchFile `yaml:"rules"`
}

type typeMatchFile struct {
	Types []string `yaml:"types"`
}

type nodeMatchFile struct {
	ID       *stringMatchFile   `yaml:"id_match"`
	Cluster  *stringMatchFile   `yaml:"cluster_match"`
	Locality *localityMatchFile `yaml:"locality_match"`
	Metadata *metadataMatchFile `yaml:"node_metadata_match"`

	// The schema before the four fields above: a field by number or name, with the members of a
	// string match.
	Field *nodeField `yaml:"field"`
	Exact *string    `yaml:"exact_match"`
	Regex *string    `yaml:"regex_match"`
}

type stringMatchFile struct {
	Exact *string `yaml:"exact_match"`
	Regex *string `yaml:"regex_match"`
}

type localityMatchFile struct {
	Region  *stringMatchFile `yaml:"region"`
	Zone    *stringMatchFile `yaml:"zone"`
	SubZone *stringMatchFile `yaml:"sub_zone"`
}

type metadataMatchFile struct {
	Path  []segmentFile `yaml:"path"`
	Match *valueFile    `yaml:"match"`
}

type segmentFile struct {
	Key string `yaml:"key"`
}

type valueFile struct {
	String *stringMatchFile `yaml:"string_match"`
	Bool   *boolMatchFile   `yaml:"bool_match"`
}

type boolMatchFile struct {
	Value bool `yaml:"value_match"`
}

type resultFile struct {
	And    *andResultFile  `yaml:"and_result"`
	Node   *nodeResultFile `yaml:"request_node_fragment"`
	Names  *namesFile      `yaml:"resource_names_fragment"`
	String *string         `yaml:"string_fragment"`
}

type andResultFile struct {
	Results []resultFile `yaml:"result_predicates"`
}

type nodeResultFile struct {
	ID       *actionFile         `yaml:"id_action"`
	Cluster  *actionFile         `yaml:"cluster_action"`
	Locality *localityActionFile `yaml:"locality_action"`
	Metadata *metadataActionFile `yaml:"node_metadata_action"`

	// The schema before the four fields above.
	Field  *nodeField  `yaml:"field"`
	Action *actionFile `yaml:"action"`
}

type localityActionFile struct {
	Region  *actionFile `yaml:"region_action"`
	Zone    *actionFile `yaml:"zone_action"`
	SubZone *actionFile `yaml:"subzone_action"`
}

type metadataActionFile struct {
	Path   []segmentFile `yaml:"path"`
	Action *actionFile   `yaml:"action"`
}

type namesFile struct {
	Element int         `yaml:"element"`
	Action  *actionFile `yaml:"action"`
}

type actionFile struct {
	Exact *bool            `yaml:"exact"`
	Regex *regexActionFile `yaml:"regex_action"`
}

type regexActionFile struct {
	Pattern string `yaml:"pattern"`
	Replace string `yaml:"replace"`
}

// nodeField is the enum NodeFieldType, by number or by name.
type nodeField int

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *nodeField) UnmarshalText(text []byte) error {
	for i, n := range []string{"NODE_ID", "NODE_CLUSTER", "NODE_LOCALITY_REGION", "NODE_LOCALITY_ZONE", "NODE_LOCALITY_SUBZONE"} {
		if string(text) == n || string(text) == fmt.Sprint(i) {
			*f = nodeField(i)
			return nil
		}
	}
	return fmt.Errorf("must be a NodeFieldType, 0 to 4 or NODE_ID … NODE_LOCALITY_SUBZONE, but is %q", text)
}
