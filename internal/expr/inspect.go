package expr

import (
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// Constant returns the value of an expression that is a literal; nil: it is none.
func (p *program) Constant() any {
	if e := p.ast.Expr(); e.Kind() == celast.LiteralKind {
		return e.AsLiteral().Value()
	}
	return nil
}

// Concatenates reports whether the expression joins two or more texts that are no literals with +.
func (p *program) Concatenates() bool {
	var parts func(e celast.Expr) int
	parts = func(e celast.Expr) int {
		switch {
		case e.Kind() == celast.LiteralKind:
			return 0
		case e.Kind() == celast.CallKind && e.AsCall().FunctionName() == operators.Add:
			return parts(e.AsCall().Args()[0]) + parts(e.AsCall().Args()[1])
		}
		return 1
	}
	return parts(p.ast.Expr()) > 1
}

// Reads returns the parts of the variables that the expression reads, such as node.cluster. It has
// each once, as Values has them.
func (p *program) Reads() []string {
	var out []string
	for _, e := range selectors(p.ast.Expr()) {
		if text, err := cel.ExprToString(e, p.ast.SourceInfo()); err == nil && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// ComparedTypes returns the literals that the expression compares with the resource type, by ==, != or
// in.
func (p *program) ComparedTypes() (out []string) {
	isType := func(e celast.Expr) bool { return e.Kind() == celast.IdentKind && ident(e) == varType }
	var literals func(e celast.Expr)
	literals = func(e celast.Expr) {
		switch e.Kind() {
		case celast.LiteralKind:
			if text, ok := e.AsLiteral().Value().(string); ok {
				out = append(out, text)
			}
		case celast.ListKind:
			for _, x := range e.AsList().Elements() {
				literals(x)
			}
		}
	}
	celast.PostOrderVisit(p.ast.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() != celast.CallKind {
			return
		}
		switch c := e.AsCall(); c.FunctionName() {
		case operators.Equals, operators.NotEquals, operators.In:
			if a, b := c.Args()[0], c.Args()[1]; isType(a) {
				literals(b)
			} else if isType(b) {
				literals(a)
			}
		}
	}))
	return out
}

// literalPatterns is cel.ValidateRegexLiterals, with the reason.
type literalPatterns struct{}

func (literalPatterns) Name() string { return "relay.patterns" }

// Validate implements cel.ASTValidator.
func (literalPatterns) Validate(_ *cel.Env, _ cel.ValidatorConfig, a *celast.AST, issues *cel.Issues) {
	for _, call := range celast.MatchDescendants(celast.NavigateAST(a), celast.FunctionMatcher("matches")) {
		args := call.AsCall().Args()
		pattern := args[len(args)-1]
		if pattern.Kind() != celast.LiteralKind {
			continue
		}
		text, _ := pattern.AsLiteral().Value().(string)
		if _, err := regexp.Compile(text); err != nil {
			issues.ReportErrorAtID(pattern.ID(), "%v", err)
		}
	}
}

// TextsOfMetadata returns the paths into the metadata that the expression converts with string().
func (p *program) TextsOfMetadata() (out []string) {
	celast.PostOrderVisit(p.ast.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() != celast.CallKind || e.AsCall().FunctionName() != "string" || !chain(e.AsCall().Args()[0], nil) || metadataFields(e.AsCall().Args()[0]) == nil {
			return
		}
		if text, err := cel.ExprToString(e.AsCall().Args()[0], p.ast.SourceInfo()); err == nil {
			out = append(out, text)
		}
	}))
	return out
}

// MetadataPath is a path into the metadata of a node, from the outermost field.
type MetadataPath struct {
	Text   string // as in the expression, without has(): node.metadata.LABELS.app
	Fields []string
}

// MetadataPaths returns the paths into the metadata that the expression reads or tests with has(). Each
// path ends before an index that is no string.
func (p *program) MetadataPaths() (out []MetadataPath) {
	for _, e := range selectors(p.ast.Expr()) {
		text, err := cel.ExprToString(e, p.ast.SourceInfo())
		fields := metadataFields(e)
		if err == nil && len(fields) > 0 && !slices.ContainsFunc(out, func(o MetadataPath) bool { return slices.Equal(o.Fields, fields) }) {
			if e.Kind() == celast.SelectKind && e.AsSelect().IsTestOnly() {
				text = strings.TrimSuffix(strings.TrimPrefix(text, "has("), ")")
			}
			out = append(out, MetadataPath{text, fields})
		}
	}
	return out
}

// metadataFields returns the fields of a chain below node.metadata.
func metadataFields(e celast.Expr) []string {
	var out []string
	for {
		switch e.Kind() {
		case celast.IdentKind:
			if ident(e) != varMetadata {
				return nil
			}
			slices.Reverse(out)
			return out
		case celast.SelectKind:
			out = append(out, e.AsSelect().FieldName())
			e = e.AsSelect().Operand()
		default: // an index, as selectors has only these
			name, ok := e.AsCall().Args()[1].AsLiteral().Value().(string)
			if out = append(out, name); !ok {
				out = nil
			}
			e = e.AsCall().Args()[0]
		}
	}
}
