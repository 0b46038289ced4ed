package expr

import (
	"encoding/json"
	"reflect"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"google.golang.org/protobuf/types/known/structpb"
)

// Value is a part of an expression that reads a variable, with its value.
type Value struct {
	Expr  string `json:"expr" yaml:"expr"`
	Value any    `json:"value,omitempty" yaml:"value,omitempty"` // as in JSON
	Error string `json:"error,omitempty" yaml:"error,omitempty"`
}

// Values returns the values that the expression uses of in: node.cluster, node.metadata["zone"],
// peer.uri_sans. Each is there once, in order, also if the evaluation did not reach it.
func (p *program) Values(in Input) []Value {
	var out []Value
	seen := map[string]bool{}
	for _, e := range selectors(p.ast.Expr()) {
		text, err := cel.ExprToString(e, p.ast.SourceInfo())
		if err != nil || seen[text] {
			continue // this part has no text; show the others
		}
		seen[text] = true
		out = append(out, p.value(text, &in))
	}
	return out
}

// value evaluates a part alone, under the same limit.
func (p *program) value(text string, in *Input) Value {
	v := Value{Expr: text}
	part, err := compile(func() (*cel.Env, error) { return p.env, nil }, "dyn("+text+")", cel.DynType)
	if err != nil {
		v.Error = err.Error()
		return v
	}
	out, err := part.eval(in)
	if err != nil {
		v.Error = err.Error()
		return v
	}
	j, err := out.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		v.Value = out.Type().TypeName()
		return v
	}
	v.Value = j.(*structpb.Value).AsInterface()
	return v
}

// String is the value in JSON, or the error.
func (v Value) String() string {
	if v.Error != "" {
		return v.Error
	}
	b, err := json.Marshal(v.Value)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// selectors returns the longest chains of fields and indices that start at a
// variable.
func selectors(e celast.Expr) []celast.Expr {
	var out []celast.Expr
	var walk func(e celast.Expr, scope map[string]bool)
	walk = func(e celast.Expr, scope map[string]bool) {
		if chain(e, scope) {
			out = append(out, e)
			return
		}
		switch e.Kind() {
		case celast.SelectKind:
			walk(e.AsSelect().Operand(), scope)
		case celast.CallKind:
			if e.AsCall().IsMemberFunction() {
				walk(e.AsCall().Target(), scope)
			}
			for _, a := range e.AsCall().Args() {
				walk(a, scope)
			}
		case celast.ListKind:
			for _, a := range e.AsList().Elements() {
				walk(a, scope)
			}
		case celast.MapKind:
			for _, a := range e.AsMap().Entries() {
				walk(a.AsMapEntry().Key(), scope)
				walk(a.AsMapEntry().Value(), scope)
			}
		case celast.StructKind:
			for _, a := range e.AsStruct().Fields() {
				walk(a.AsStructField().Value(), scope)
			}
		case celast.ComprehensionKind:
			c := e.AsComprehension()
			walk(c.IterRange(), scope)
			walk(c.AccuInit(), scope)
			// A loop's own variable may have the name of ours.
			inner := map[string]bool{c.IterVar(): true, c.IterVar2(): true, c.AccuVar(): true}
			for k := range scope {
				inner[k] = true
			}
			walk(c.LoopCondition(), inner)
			walk(c.LoopStep(), inner)
			walk(c.Result(), inner)
		}
	}
	walk(e, map[string]bool{})
	return out
}

// chain reports whether e is a variable, a field of a chain, or a constant index of one. scope has
// names that are hidden by a loop's variables.
func chain(e celast.Expr, scope map[string]bool) bool {
	r := root(e)
	if r.Kind() != celast.IdentKind {
		return false
	}
	n := r.AsIdent()
	return !scope[n] && (n == varNode || n == varMetadata || n == varType || n == varPeer || n == varToken)
}

// root is what a chain of fields and constant indices starts at.
func root(e celast.Expr) celast.Expr {
	for {
		switch e.Kind() {
		case celast.SelectKind:
			e = e.AsSelect().Operand()
		case celast.CallKind:
			c := e.AsCall()
			if c.FunctionName() != operators.Index || c.Args()[1].Kind() != celast.LiteralKind {
				return e
			}
			e = c.Args()[0]
		default:
			return e
		}
	}
}
