package redact

import (
	"slices"
	"strings"
	"testing"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	xdstypev3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	setv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	apikeyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_filter_state/v3"
	oauth2v3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/injected_credentials/oauth2/v3"
	networkinputsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func pack(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func object(t testing.TB, m map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func inlined(s string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
}

func exact(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func format(s string) *corev3.SubstitutionFormatString {
	return &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: inlined(s)}}
}

func segments(keys ...string) (out []*matcherv3.MetadataMatcher_PathSegment) {
	for _, k := range keys {
		out = append(out, &matcherv3.MetadataMatcher_PathSegment{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: k}})
	}
	return out
}

// predicate is one of the matcher API that compares the input with the marker.
func predicate(t testing.TB, input proto.Message) proto.Message {
	return &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
		Input:   &xdscorev3.TypedExtensionConfig{Name: "shown", TypedConfig: pack(t, input)},
		Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: &xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Exact{Exact: marker}}},
	}
}

// tree is a matcher that looks a header up in a map with one key.
func tree(t testing.TB, header, key, action string) proto.Message {
	return &xdsmatcherv3.Matcher{MatcherType: &xdsmatcherv3.Matcher_MatcherTree_{MatcherTree: &xdsmatcherv3.Matcher_MatcherTree{
		Input: &xdscorev3.TypedExtensionConfig{Name: "header", TypedConfig: pack(t, &matcherv3.HttpRequestHeaderMatchInput{HeaderName: header})},
		TreeType: &xdsmatcherv3.Matcher_MatcherTree_ExactMatchMap{ExactMatchMap: &xdsmatcherv3.Matcher_MatcherTree_MatchMap{Map: map[string]*xdsmatcherv3.Matcher_OnMatch{
			key: {OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{Action: &xdscorev3.TypedExtensionConfig{Name: action}}}}}},
	}}}
}

// contexts are messages with the marker at each place of a secret.
func contexts(t testing.TB) map[string]proto.Message {
	tlsContext := &tlsv3.UpstreamTlsContext{Sni: "shown", CommonTlsContext: &tlsv3.CommonTlsContext{
		TlsCertificates: []*tlsv3.TlsCertificate{{CertificateChain: inlined("shown"), PrivateKey: inlined(marker), Password: inlined(marker)}}}}
	socket := func(m proto.Message) *corev3.TransportSocket {
		return &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(t, m)}}
	}
	cluster := &clusterv3.Cluster{Name: "shown", TransportSocket: socket(tlsContext)}
	bytes := proto.CloneOf(tlsContext)
	bytes.CommonTlsContext.TlsCertificates[0].PrivateKey = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(marker)}}
	unknown := &clusterv3.Cluster{Name: "shown"}
	unknown.ProtoReflect().SetUnknown(protoreflect.RawFields("\xfa\xff\x07" + string(rune(len(marker))) + marker))
	return map[string]proto.Message{
		"a key in a cluster":          cluster,
		"a pair in a struct":          object(t, map[string]any{"zone": "shown", "headers": []any{map[string]any{"name": "x-api-key", "value": marker}}}),
		"a source that is not marked": &tracev3.LightstepConfig{CollectorCluster: "shown", AccessToken: inlined(marker)},
		"a key as bytes":              &clusterv3.Cluster{Name: "shown", TransportSocket: socket(bytes)},
		"a key in an Any in an Any":   pack(t, pack(t, pack(t, cluster))),
		"session tickets": &listenerv3.Listener{Name: "shown", FilterChains: []*listenerv3.FilterChain{{TransportSocket: socket(&tlsv3.DownstreamTlsContext{
			SessionTicketKeysType: &tlsv3.DownstreamTlsContext_SessionTicketKeys{SessionTicketKeys: &tlsv3.TlsSessionTicketKeys{Keys: []*corev3.DataSource{inlined(marker)}}}})}}},
		"a Secret": &tlsv3.Secret{Name: "shown", Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{Secret: inlined(marker)}}},
		"what a Secret says to be public": &tlsv3.Secret{Name: "shown", Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: inlined(marker)}}},
		"metadata": &endpointv3.LbEndpoint{Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"shown": object(t, map[string]any{"password": marker, "auth": map[string]any{"user_password": marker}, "list": []any{map[string]any{"api_key": []any{marker}}}})}}},
		"a node":         &corev3.Node{Id: "shown", Metadata: object(t, map[string]any{"TOKEN": marker, "deep": map[string]any{"x": "Bearer " + marker}})},
		"a typed struct": pack(t, &xdstypev3.TypedStruct{TypeUrl: "shown", Value: object(t, map[string]any{"private_key": map[string]any{"inline_string": marker}})}),
		"headers": &routev3.RouteConfiguration{Name: "shown", RequestHeadersToAdd: []*corev3.HeaderValueOption{
			{Header: &corev3.HeaderValue{Key: "authorization", Value: marker}}, {Header: &corev3.HeaderValue{Key: "x-api-key", RawValue: []byte(marker)}}}},
		"a header that is matched": &routev3.HeaderMatcher{Name: "cookie", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
			StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: marker}}}},
		"credentials of a gRPC service": &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_GoogleGrpc_{GoogleGrpc: &corev3.GrpcService_GoogleGrpc{TargetUri: "shown",
			CallCredentials: []*corev3.GrpcService_GoogleGrpc_CallCredentials{{CredentialSpecifier: &corev3.GrpcService_GoogleGrpc_CallCredentials_AccessToken{AccessToken: marker}}}}}},
		"the key of a service account": &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_GoogleGrpc_{GoogleGrpc: &corev3.GrpcService_GoogleGrpc{TargetUri: "shown",
			CallCredentials: []*corev3.GrpcService_GoogleGrpc_CallCredentials{{CredentialSpecifier: &corev3.GrpcService_GoogleGrpc_CallCredentials_ServiceAccountJwtAccess{
				ServiceAccountJwtAccess: &corev3.GrpcService_GoogleGrpc_CallCredentials_ServiceAccountJWTAccessCredentials{JsonKey: marker}}}}}}},
		"filter state": &filterstatev3.Config{OnRequestHeaders: []*setv3.FilterStateValue{
			{Key: &setv3.FilterStateValue_ObjectKey{ObjectKey: "api_key"}, Value: &setv3.FilterStateValue_FormatString{FormatString: format(marker)}},
			{Key: &setv3.FilterStateValue_ObjectKey{ObjectKey: "zone"}, Value: &setv3.FilterStateValue_FormatString{FormatString: format("shown")}}}},
		"filter state in a struct": object(t, map[string]any{"zone": "shown", "a": []any{map[string]any{"object_key": "api_key", "format_string": map[string]any{"text_format": marker}},
			map[string]any{"objectKey": "api_key", "formatString": map[string]any{"textFormat": marker}}}}),
		"a parameter of a URL":         &corev3.HttpUri{Uri: "https://shown.test/?zone=a&api_key=" + marker},
		"a cookie that is matched":     &routev3.RouteMatch{Cookies: []*routev3.CookieMatcher{{Name: "session-token", StringMatch: exact(marker)}}, PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/shown"}},
		"a parameter of OAuth2":        &oauth2v3.OAuth2{EndpointParams: []*oauth2v3.OAuth2_EndpointParameter{{Name: "client_secret", Value: marker}, {Name: "audience", Value: "shown"}}},
		"a tag of traces":              &tracingv3.CustomTag{Tag: "shown_token", Type: &tracingv3.CustomTag_Literal_{Literal: &tracingv3.CustomTag_Literal{Value: marker}}},
		"a default value of a tag":     &tracingv3.CustomTag_Header{Name: "x-shown-api-key", DefaultValue: marker},
		"metadata that is matched":     &matcherv3.MetadataMatcher{Filter: "x", Path: segments("shown", "token"), Value: &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: exact(marker)}}},
		"a predicate":                  predicate(t, &matcherv3.HttpRequestHeaderMatchInput{HeaderName: "authorization"}),
		"a predicate of metadata":      predicate(t, &networkinputsv3.DynamicMetadataInput{Filter: "x", Path: []*networkinputsv3.DynamicMetadataInput_PathSegment{{Segment: &networkinputsv3.DynamicMetadataInput_PathSegment_Key{Key: "api_key"}}}}),
		"a map of headers":             tree(t, "x-api-key", marker, "/shown"),
		"a key that two clients have":  &apikeyv3.ApiKeyAuth{Credentials: []*apikeyv3.Credential{{Key: marker, Client: "a"}, {Key: marker, Client: "b"}}, KeySources: []*apikeyv3.KeySource{{Header: "shown"}}},
		"JSON in a StringValue":        pack(t, wrapperspb.String(`{"zone": "shown", "deep": [{"signing_key": "`+marker+`"}]}`)),
		"JSON in JSON":                 pack(t, wrapperspb.String(`{"zone": "shown", "deep": "{\"name\": \"x-api-key\", \"value\": \"`+marker+`\"}"}`)),
		"JSON in bytes":                &luav3.LuaPerRoute{Override: &luav3.LuaPerRoute_SourceCode{SourceCode: &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(`[1, {"pwd": "` + marker + `"}]`)}}}, FilterContext: object(t, map[string]any{"x": "shown"})},
		"literals in a program":        &luav3.Lua{DefaultSourceCode: inlined("-- shown\nlocal api_key = '" + marker + "'\nhandle:headers():add(\"authorization\", \"a\\\"" + marker + "\")\nt[\"x-api-key\"] = \"" + marker + "\"\nif handle:headers():get(\"cookie\") ~= '" + marker + "' then end")},
		"YAML in a StringValue":        pack(t, wrapperspb.String("zone: shown\nclient_secret: "+marker+"\nlist:\n  - password: \""+marker+"\"\n")),
		"lines of NAME=value":          pack(t, wrapperspb.String("ZONE=shown\nDB_PASS="+marker)),
		"a matched header in a struct": object(t, map[string]any{"zone": "shown", "headers": []any{map[string]any{"name": "authorization", "string_match": map[string]any{"exact": marker}}}}),
		"Basic credentials":            object(t, map[string]any{"zone": "shown", "x": "Basic dXNlcjp" + marker}),
		"a pair under a secret's name": object(t, map[string]any{"zone": "shown", "credentials": map[string]any{"key": marker}}),
		"symmetric keys":               &jwtv3.JwtProvider{Issuer: "shown", JwksSourceSpecifier: &jwtv3.JwtProvider_LocalJwks{LocalJwks: inlined(`{"keys":[{"kty":"oct","k":"` + marker + `"}]}`)}},
		"text":                         &clusterv3.Cluster{Name: "shown", AltStatName: "-----BEGIN PRIVATE KEY-----" + marker},
		"an unknown type":              &corev3.TypedExtensionConfig{Name: "shown", TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/acme.Unknown", Value: []byte(marker)}},
		"garbage":                      &corev3.TypedExtensionConfig{Name: "shown", TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster", Value: []byte("\xff" + marker)}},
		"a type's URL":                 &corev3.TypedExtensionConfig{Name: "shown", TypedConfig: &anypb.Any{TypeUrl: "x/eyJhbGciOiJIUzI1NiJ9." + marker}},
		"unknown fields":               unknown,
		"fields below, in an Any":      pack(t, unknown),
		"deeper than it is looked":     nested(t, cluster, 3*maxDepth),
		"a Struct that is too deep":    deepStruct(2 * maxDepth),
	}
}

func nested(t testing.TB, m proto.Message, depth int) *anypb.Any {
	a := pack(t, m)
	for range depth {
		a = pack(t, a)
	}
	return a
}

func deepStruct(depth int) *structpb.Struct {
	v := structpb.NewStringValue("Bearer " + marker)
	for range depth {
		v = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"shown": v}})
	}
	return v.GetStructValue()
}

func TestMessageHidesSecrets(t *testing.T) {
	for what, m := range contexts(t) {
		before := proto.Clone(m)
		out := Message(m)
		if !proto.Equal(m, before) {
			t.Errorf("%s: what was given was changed", what)
		}
		wire, err := proto.Marshal(out)
		if err != nil || strings.Contains(string(wire), marker) {
			t.Errorf("%s: %v, %v", what, out, err)
		}
		text, err := JSON(m)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		// JSON has bytes in base64.
		if strings.Contains(string(text), marker) || strings.Contains(string(text), "dGhla2V5dGhhdG5vYm9keW1heXNlZ") {
			t.Errorf("%s: %s", what, text)
		}
		if what != "deeper than it is looked" && what != "a type's URL" && !strings.Contains(string(text), "shown") && what != "a header that is matched" {
			t.Errorf("%s: nothing is left: %s", what, text)
		}
	}
}

// An Any of an unknown type is shown by type and size.
func TestUnknownTypesAreShownBySize(t *testing.T) {
	text, err := JSON(Any(&anypb.Any{TypeUrl: "type.googleapis.com/acme.Unknown", Value: make([]byte, 123)}))
	if err != nil || !strings.Contains(string(text), "acme.Unknown") || !strings.Contains(string(text), "123") {
		t.Errorf("%s, %v", text, err)
	}
}

// Nothing else is hidden.
func TestMessageLeavesTheRest(t *testing.T) {
	c := &clusterv3.Cluster{Name: "token-service", AltStatName: "key", EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "s"},
		Metadata:        &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"x": object(t, map[string]any{"key": "v", "secretName": "cert", "use_token": true})}},
		TransportSocket: &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(t, &tlsv3.UpstreamTlsContext{Sni: "a.test"})}}}
	if out := Message(c); !proto.Equal(out, c) {
		t.Errorf("%v became %v", c, out)
	}
	for _, said := range []string{
		"local zone = \"a\"\nhandle:headers():add(\"x-zone\", 'b')\nlocal token = handle:headers():get(\"authorization\")",
		"zone: a\ntls_secret_name: \"b\"\ntoken_endpoint: https://sts.test/token\n",
		`{"a": "cookie", "zone": "b"}`,
	} {
		if m := wrapperspb.String(said); !proto.Equal(Message(m), m) {
			t.Errorf("%s became %v", said, Message(m))
		}
	}
	if Message((*clusterv3.Cluster)(nil)) == nil || Any(nil) != nil {
		t.Error("nothing became something else")
	}
}

// For any message there is no panic, the result is the same each time, and a key inside is hidden.
func FuzzMessage(f *testing.F) {
	for _, m := range contexts(f) {
		b, err := proto.Marshal(pack(f, m))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(1))
	}
	f.Fuzz(func(t *testing.T, wire []byte, depth uint8) {
		var a anypb.Any
		if proto.Unmarshal(wire, &a) == nil {
			if once, again := Any(&a), Any(&a); !proto.Equal(once, again) {
				t.Errorf("became %v, and %v", once, again)
			}
			_, _ = JSON(&a) // an error for what JSON cannot express
		}
		junk := &corev3.TypedExtensionConfig{Name: "a", TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.core.v3.Node", Value: wire}}
		key := &tlsv3.TlsCertificate{PrivateKey: inlined(marker), Pkcs12: inlined(marker)}
		all := &corev3.Node{Metadata: object(t, map[string]any{"password": marker})}
		for _, m := range []proto.Message{junk, nested(t, key, int(depth)), all} {
			out, err := proto.Marshal(Message(m))
			if err != nil || strings.Contains(string(out), marker) && !strings.Contains(string(wire), marker) {
				t.Errorf("%v, %v", out, err)
			}
		}
	})
}

// entities are messages with a name of an object of the configuration, beside other text: they are
// no pairs of a name and content. A message that is new here is one of the two; see pairNames.
var entities = map[protoreflect.FullName]bool{
	"cel.expr.Reference":                                  true,
	"envoy.config.cluster.v3.Cluster":                     true,
	"envoy.config.core.v3.AlternateProtocolsCacheOptions": true,
	"envoy.config.core.v3.Extension":                      true,
	"envoy.config.core.v3.GrpcMethodList.Service":         true,
	"envoy.config.core.v3.HealthCheck":                    true,
	"envoy.config.listener.v3.Listener":                   true,
	"envoy.config.route.v3.Route":                         true,
	"envoy.config.route.v3.RouteAction.HashPolicy.Cookie": true,
	"envoy.config.route.v3.RouteConfiguration":            true,
	"envoy.config.route.v3.ScopedRouteConfiguration":      true,
	"envoy.config.route.v3.VirtualHost":                   true,
	"envoy.config.route.v3.WeightedCluster.ClusterWeight": true,
	"envoy.extensions.filters.http.lua.v3.LuaPerRoute":    true,
	"envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes.ScopeKeyBuilder.FragmentBuilder.HeaderValueExtractor": true,
	"envoy.extensions.transport_sockets.tls.v3.SPIFFECertValidatorConfig.TrustDomain":                                               true,
	"envoy.extensions.wasm.v3.PluginConfig":   true,
	"envoy.type.http.v3.Cookie":               true,
	"xds.core.v3.CollectionEntry.InlineEntry": true,
}

// Each linked message that has a name and text or a matcher of text is a pair, or one of entities.
// So no new extension is forgotten.
func TestEachLinkedPairIsHidden(t *testing.T) {
	found := 0
	protoregistry.GlobalTypes.RangeMessages(func(typ protoreflect.MessageType) bool {
		d := typ.Descriptor()
		if pkg := string(d.FullName()); strings.HasPrefix(pkg, "google.") || strings.HasPrefix(pkg, "envoy.api.") || strings.HasPrefix(pkg, "envoy.admin.") || strings.HasPrefix(pkg, "envoy.service.") {
			return true
		}
		for _, name := range pairNames {
			f := d.Fields().ByName(name)
			if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() || entities[d.FullName()] {
				continue
			}
			for i := range d.Fields().Len() {
				of := d.Fields().Get(i)
				m := typ.New()
				m.Set(f, protoreflect.ValueOfString("x-api-key"))
				switch {
				case of == f || slices.Contains(pairNames, of.Name()):
					continue
				case isText(of.Kind()) && of.IsList():
					m.Mutable(of).List().Append(text(of))
				case isText(of.Kind()):
					m.Set(of, text(of))
				case of.Message() != nil && of.Message().FullName() == "envoy.type.matcher.v3.StringMatcher" && !of.IsList():
					m.Set(of, protoreflect.ValueOfMessage(exact(marker).ProtoReflect()))
				case of.Message() != nil && of.Message().FullName() == "envoy.config.core.v3.SubstitutionFormatString" && !of.IsList():
					m.Set(of, protoreflect.ValueOfMessage(format(marker).ProtoReflect()))
				case of.Message() != nil && of.Message().FullName() == valueType:
					m.Set(of, protoreflect.ValueOfMessage(structpb.NewStringValue(marker).ProtoReflect()))
				default:
					continue
				}
				found++
				if wire, err := proto.Marshal(Message(m.Interface())); err != nil || strings.Contains(string(wire), marker) {
					t.Errorf("%s is shown: a secret in it is not hidden, or %s is one of entities (%v)", of.FullName(), d.FullName(), err)
				}
			}
		}
		return true
	})
	if found < 20 {
		t.Errorf("only %d fields were found", found)
	}
}

func text(f protoreflect.FieldDescriptor) protoreflect.Value {
	if f.Kind() == protoreflect.BytesKind {
		return protoreflect.ValueOfBytes([]byte(marker))
	}
	return protoreflect.ValueOfString(marker)
}
