package xds

import "strings"

// TypeURL is a resource type as it stands in type_url,
// "type.googleapis.com/envoy.config.cluster.v3.Cluster".
type TypeURL string

// The types that the protocol names. Any other type URL is carried as well
// (P3), by the rules of the zero row.
const (
	ClusterType   TypeURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType  TypeURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType  TypeURL = "type.googleapis.com/envoy.config.listener.v3.Listener"
	ScopedType    TypeURL = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
	RouteType     TypeURL = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	VHostType     TypeURL = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
	SecretType    TypeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	RuntimeType   TypeURL = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
	ExtensionType TypeURL = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
)

// Type is a row of the type table: everything in which one type differs from
// another. Code asks the row, it does not switch on the URL.
type Type struct {
	URL   TypeURL
	Short string // "CDS"; empty for a type outside the table
	// FullState: a SotW response holds everything, and what is missing is gone.
	FullState bool
	// NoLegacyWildcard: an empty first list of names is no interest (P21).
	NoLegacyWildcard bool
	// AlwaysResend: initial_resource_versions suppress nothing (P27).
	AlwaysResend bool
	// Warms: an unacknowledged response may not hold back the next one when a
	// later type has a change to send, since clients withhold the ACK (P19).
	Warms bool
	// LeavesLast: the group delays its deletions (P36).
	LeavesLast bool
	// Points: its resources lead to clusters (P36).
	Points bool
	// Follower names the type whose resource follows each new or changed
	// resource of this one, under the name Resource.Follows (P37).
	Follower TypeURL
	// Aliases: clients ask for resources by alias as a rule (P26), so that what
	// they bring from another stream is not what they ask for (P27).
	Aliases bool
	// Order of sending on an aggregated stream, lowest first (P35).
	Order uint8
	// Secret: only clients with a proven identity are given it (P6).
	Secret bool
	// Service that carries this type alone, and its methods; SotW is "" where
	// there is none (P4).
	Service, SotW, Delta string
	// REST is the path at which this type is polled as JSON; "" where there is
	// none (P70).
	REST string
}

// lastOrder is that of every type P35 does not name.
const lastOrder = 6

var table = []Type{
	{URL: ClusterType, Short: "CDS", FullState: true, Warms: true, LeavesLast: true, Follower: EndpointType, Order: 0,
		Service: "envoy.service.cluster.v3.ClusterDiscoveryService", SotW: "StreamClusters", Delta: "DeltaClusters",
		REST: "/v3/discovery:clusters"},
	{URL: EndpointType, Short: "EDS", NoLegacyWildcard: true, AlwaysResend: true, Warms: true, LeavesLast: true, Order: 1,
		Service: "envoy.service.endpoint.v3.EndpointDiscoveryService", SotW: "StreamEndpoints", Delta: "DeltaEndpoints",
		REST: "/v3/discovery:endpoints"},
	{URL: ListenerType, Short: "LDS", FullState: true, Points: true, Order: 2,
		Service: "envoy.service.listener.v3.ListenerDiscoveryService", SotW: "StreamListeners", Delta: "DeltaListeners",
		REST: "/v3/discovery:listeners"},
	{URL: ScopedType, Short: "SRDS", FullState: true, Points: true, Order: 3,
		Service: "envoy.service.route.v3.ScopedRoutesDiscoveryService", SotW: "StreamScopedRoutes", Delta: "DeltaScopedRoutes",
		REST: "/v3/discovery:scoped-routes"},
	{URL: RouteType, Short: "RDS", NoLegacyWildcard: true, Points: true, Order: 4,
		Service: "envoy.service.route.v3.RouteDiscoveryService", SotW: "StreamRoutes", Delta: "DeltaRoutes",
		REST: "/v3/discovery:routes"},
	{URL: VHostType, Short: "VHDS", Aliases: true, Points: true, Order: 5,
		Service: "envoy.service.route.v3.VirtualHostDiscoveryService", Delta: "DeltaVirtualHosts"},
	{URL: SecretType, Short: "SDS", NoLegacyWildcard: true, Secret: true, Order: lastOrder,
		Service: "envoy.service.secret.v3.SecretDiscoveryService", SotW: "StreamSecrets", Delta: "DeltaSecrets",
		REST: "/v3/discovery:secrets"},
	{URL: RuntimeType, Short: "RTDS", NoLegacyWildcard: true, Order: lastOrder,
		Service: "envoy.service.runtime.v3.RuntimeDiscoveryService", SotW: "StreamRuntime", Delta: "DeltaRuntime",
		REST: "/v3/discovery:runtime"},
	{URL: ExtensionType, Short: "ECDS", NoLegacyWildcard: true, Order: lastOrder,
		Service: "envoy.service.extension.v3.ExtensionConfigDiscoveryService", SotW: "StreamExtensionConfigs", Delta: "DeltaExtensionConfigs",
		REST: "/v3/discovery:extension_configs"},
}

var byURL, byShort = func() (map[TypeURL]*Type, map[string]*Type) {
	u, s := make(map[TypeURL]*Type), make(map[string]*Type)
	for i := range table {
		u[table[i].URL], s[table[i].Short] = &table[i], &table[i]
	}
	return u, s
}()

// Types returns the rows of the table, in the order of sending.
func Types() []Type { return table }

// TypeOf returns the row of url; for a URL outside the table a row with the
// protocol's general rules.
func TypeOf(url TypeURL) Type {
	if t, ok := byURL[url]; ok {
		return *t
	}
	return Type{URL: url, Order: lastOrder, Secret: secretMessage(url)}
}

// secretMessage reports whether a type URL outside the table names the message
// of Secrets: under another prefix, which protobuf reads as the same, or in the
// version that was before v3. An origin may answer such a type too.
func secretMessage(url TypeURL) bool {
	switch url[strings.LastIndexByte(string(url), '/')+1:] {
	case "envoy.extensions.transport_sockets.tls.v3.Secret", "envoy.api.v2.auth.Secret":
		return true
	}
	return false
}

// Label is the type as metrics show it: its short name, or "other".
func (t Type) Label() string {
	if t.Short == "" {
		return "other"
	}
	return t.Short
}

// ParseType reads a type as users write it: a short name in any case ("cds"),
// or a URL, which is taken as it is. It reports false for anything else.
func ParseType(s string) (TypeURL, bool) {
	if t, ok := byShort[strings.ToUpper(s)]; ok {
		return t.URL, true
	}
	if strings.Contains(s, "/") {
		return TypeURL(s), true
	}
	return "", false
}
