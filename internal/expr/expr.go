package expr

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"xdsrelay/internal/spelling"
	"xdsrelay/internal/xds"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
)

// CostLimit bounds an evaluation, in CEL's units. Comparing a few fields costs less than 100, a
// regular expression over a kilobyte some hundreds, a loop over a list about 10 for each element. At
// the limit, after some tens of milliseconds, the evaluation fails.
const CostLimit = 20_000

// Error is the error of an expression that does not compile.
type Error struct {
	Text   string
	Issues []Issue
}

// Issue is one fault of an expression. Line and column count from 1, columns in characters.
type Issue struct {
	Line, Column int
	Message      string
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Issues))
	for i, is := range e.Issues {
		lines[i] = fmt.Sprintf("%d:%d: %s", is.Line, is.Column, is.Message)
	}
	return "expression " + fmt.Sprintf("%q", e.Text) + ": " + strings.Join(lines, "; ")
}

type program struct {
	text string
	env  *cel.Env
	ast  *celast.AST
	prg  cel.Program
	uses map[string]bool
}

// compile compiles an expression of type want, or of a type that only its evaluation shows.
func compile(newEnv func() (*cel.Env, error), text string, want *cel.Type) (*program, error) {
	env, err := newEnv()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues != nil && issues.Err() != nil {
		e := &Error{Text: text}
		for _, is := range issues.Errors() {
			e.Issues = append(e.Issues, Issue{
				Line: max(1, is.Location.Line()), Column: max(0, is.Location.Column()) + 1, Message: plainly(env, is.Message, text),
			})
		}
		return nil, e
	}
	if t := ast.OutputType(); !t.IsExactType(want) && t.Kind() != types.DynKind {
		return nil, &Error{Text: text, Issues: []Issue{{
			Line: 1, Column: 1, Message: fmt.Sprintf("must give %s, but gives %s", name(want), name(t)),
		}}}
	}
	prg, err := env.Program(ast, cel.CostLimit(CostLimit), cel.CostTracking(callCosts{}), cel.CustomDecoratorV2(bound),
		cel.OptimizeRegex(interpreter.MatchesRegexOptimization))
	if err != nil {
		return nil, &Error{Text: text, Issues: []Issue{{Line: 1, Column: 1, Message: err.Error()}}}
	}
	p := &program{text: text, env: env, ast: ast.NativeRep(), prg: prg, uses: map[string]bool{}}
	celast.PostOrderVisit(p.ast.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() == celast.IdentKind {
			p.uses[ident(e)] = true
		}
	}))
	return p, nil
}

// hasOfIndex matches has(m["a/b"]).
var hasOfIndex = regexp.MustCompile(`\bhas\(\s*([^()]*?)\[\s*("[^"]*"|'[^']*')\s*\]\s*\)`)

// CEL's errors of the commonest mistakes.
var (
	noValue    = regexp.MustCompile(`^Syntax error: (?:mismatched|extraneous) input '(.+)' expecting \{'\[', `)
	noOperator = regexp.MustCompile(`^Syntax error: (?:mismatched|extraneous) input '(.+)' expecting <EOF>`)
	noField    = regexp.MustCompile(`^undefined field '(.+)'$`)
	noName     = regexp.MustCompile(`^undeclared reference to '([^']+)'`)
)

// word matches an expression that is a name, and probably meant as a text: canary, eu-1.
var word = regexp.MustCompile(`^\s*[A-Za-z_][\w-]*\s*$`)

// plainly says what to write instead, for an error of CEL that does not.
func plainly(env *cel.Env, message, text string) string {
	message = strings.TrimSuffix(message, " (in container 'envoy.config.core.v3')")
	if strings.HasPrefix(message, "undeclared reference to") && word.MatchString(text) {
		name := strings.TrimSpace(text)
		if slices.Contains([]string{"id", "cluster", "metadata", "locality"}, name) {
			return message + "; the field is node." + name
		}
		return fmt.Sprintf(`%s; a text has quotes of its own: "'%s'"`, message, name)
	}
	if m := noValue.FindStringSubmatch(message); m != nil {
		return "Syntax error: a value is missing before " + strings.ReplaceAll(m[1], "<EOF>", "the end")
	}
	if m := noOperator.FindStringSubmatch(message); m != nil {
		return "Syntax error: an operator such as && is missing before " + m[1]
	}
	if strings.HasPrefix(message, "Syntax error: token recognition error at: '=") {
		return "Syntax error: write == to compare"
	}
	var known []string
	m := noField.FindStringSubmatch(message)
	if m != nil {
		for _, in := range []string{nodeType.TypeName(), "envoy.config.core.v3.Locality", peerType.TypeName()} {
			names, _ := env.CELTypeProvider().FindStructFieldNames(in)
			known = append(known, names...)
		}
	} else if m = noName.FindStringSubmatch(message); m != nil {
		known = append(slices.Collect(maps.Keys(env.Functions())), varNode, varType, varPeer)
		message = m[0]
	}
	if m != nil {
		if near := spelling.Nearest(m[1], slices.Values(known)); near != "" {
			message += "; did you mean " + near + "?"
		}
		return message
	}
	if !strings.HasPrefix(message, "invalid argument to has() macro") {
		return message
	}
	if m := hasOfIndex.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("has() takes a field, not an index: write %s in %s", m[2], m[1])
	}
	return "has() takes a field, such as has(node.metadata.app)"
}

// ident is the name of an identifier. An absolute one (`.peer`) names the variable although a
// macro has a variable of that name.
func ident(e celast.Expr) string { return strings.TrimPrefix(e.AsIdent(), ".") }

// name is a type's name for users.
func name(t *cel.Type) string {
	if t.IsExactType(nodeType) {
		return "a Node"
	}
	return cel.FormatCELType(t)
}

func (p *program) eval(in *Input) (out ref.Val, err error) {
	in.Together(func(in Input) { out, _, err = p.prg.Eval(in.vars) })
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "operation cancelled: ")
		if p.uses[varToken] && p.quotes(text, in.Peer.Token) {
			text = "fails with an error that quotes a claim of the token"
		}
		return nil, errors.New(text)
	}
	return out, nil
}

// quotes reports whether an error has a claim, or a part of one, that is not in the expression too.
func (p *program) quotes(text string, claim any) bool {
	switch c := claim.(type) {
	case map[string]any:
		for _, part := range c {
			if p.quotes(text, part) {
				return true
			}
		}
		return false
	case []any:
		return slices.ContainsFunc(c, func(part any) bool { return p.quotes(text, part) })
	}
	s := fmt.Sprint(claim)
	return s != "" && strings.Contains(text, s) && !strings.Contains(p.text, s)
}

func (p *program) Text() string { return p.text }

// UsesType reports whether the result can depend on the resource type.
func (p *program) UsesType() bool { return p.uses[varType] }

// UsesPeer reports whether the result can depend on the peer.
func (p *program) UsesPeer() bool { return p.uses[varPeer] || p.uses[varToken] }

// Predicate is an expression with a bool.
type Predicate struct{ program }

// NewMatch compiles the match of a rule, over node, type and peer. Its error is an *Error.
func NewMatch(text string) (*Predicate, error) { return newPredicate(ruleEnv, text) }

// NewIdentity compiles an identity rule, over node and peer. Its error is an *Error.
func NewIdentity(text string) (*Predicate, error) { return newPredicate(peerEnv, text) }

func newPredicate(env func() (*cel.Env, error), text string) (*Predicate, error) {
	p, err := compile(env, text, cel.BoolType)
	if err != nil {
		return nil, err
	}
	return &Predicate{*p}, nil
}

// Proven returns the names of the peer that p reads, except the address. They are empty for a peer
// that proved nothing. has() reads no name.
func (p *program) Proven() (out []string) {
	tokens := map[int64]bool{} // where p reads peer.token
	celast.PostOrderVisit(p.ast.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() == celast.IdentKind && ident(e) == varToken {
			tokens[e.ID()] = true
		}
		if e.Kind() != celast.SelectKind {
			return
		}
		s := e.AsSelect()
		if s.IsTestOnly() {
			delete(tokens, root(e).ID()) // which was visited before
		}
		text := varPeer + "." + s.FieldName()
		if p.ast.GetType(s.Operand().ID()).IsExactType(peerType) && !s.IsTestOnly() && s.FieldName() != "address" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}))
	if len(tokens) > 0 {
		out = append(out, varToken)
	}
	return out
}

// Eval reports whether in matches p.
func (p *Predicate) Eval(in Input) (bool, error) {
	out, err := p.eval(&in)
	if err != nil {
		return false, err
	}
	b, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("must give bool, but gives %s", out.Type().TypeName())
	}
	return b, nil
}

// String is an expression with a string.
type String struct{ program }

// NewKey compiles an element of a rule's key, over node, type and peer. Its error is an *Error.
func NewKey(text string) (*String, error) {
	p, err := compile(ruleEnv, text, cel.StringType)
	if err != nil {
		return nil, err
	}
	return &String{*p}, nil
}

// Eval returns the string, which may be empty.
func (p *String) Eval(in Input) (string, error) {
	out, err := p.eval(&in)
	if err != nil {
		return "", err
	}
	s, ok := out.Value().(string)
	if !ok {
		return "", fmt.Errorf("must give string, but gives %s; use string()", out.Type().TypeName())
	}
	return s, nil
}

// Node is an expression with a node.
type Node struct{ program }

// NewNode compiles the expression of the node that is sent to origins, over a client's node. Its
// error is an *Error.
func NewNode(text string) (*Node, error) {
	p, err := compile(nodeEnv, text, nodeType)
	if err != nil {
		return nil, err
	}
	return &Node{*p}, nil
}

// Eval returns the node for a client's node; it may be the same one.
func (p *Node) Eval(node *corev3.Node) (*corev3.Node, error) {
	out, err := p.eval(&Input{Node: node})
	if err != nil {
		return nil, err
	}
	n, err := out.ConvertToNative(reflect.TypeFor[*corev3.Node]())
	if err != nil {
		return nil, fmt.Errorf("must give a Node, but gives %s", out.Type().TypeName())
	}
	return n.(*corev3.Node), nil
}

// Encode evaluates the expression for a client's node. It returns the wire form of the result, which is
// sent to origins (P58).
func (p *Node) Encode(n *xds.Node) (wire []byte, err error) {
	err = n.With(func(m *corev3.Node) error {
		out, err := p.Eval(m)
		if err == nil {
			wire, err = proto.MarshalOptions{Deterministic: true}.Marshal(out)
		}
		if err != nil {
			return fmt.Errorf("upstream.node: %w", err)
		}
		return nil
	})
	return wire, err
}
