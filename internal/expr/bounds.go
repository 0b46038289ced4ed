package expr

import (
	"strings"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
	"google.golang.org/protobuf/proto"
)

// Bounds of strings, in bytes. CEL charges the cost of a call after the call has returned. So the
// operands and the results of one call need bounds of their own.
const (
	// MaxOperand bounds a string that an expression reads of a node, a type or a peer.
	MaxOperand = 16 << 10
	// MaxResult bounds a string that replace and join make. All other functions make strings that are
	// about as long as their operands together.
	MaxResult = 64 << 10
	// MaxPattern bounds a regular expression that is no literal. A pattern such as [a-z]{1,900} needs
	// much more memory than its length.
	MaxPattern = 1 << 10
)

// bound makes a part of an expression fail if it reads too long a string, and replaces the calls whose
// result, or whose work, can be much larger than their operands. A matches with a literal pattern is
// compiled with the expression (cel.OptimizeRegex), so it is replaced again.
func bound(part interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch part := part.(type) {
	case interpreter.InterpretableAttribute:
		return boundedAttribute{part}, nil
	case interpreter.InterpretableCall:
		if f := boundedFunctions[part.Function()]; f != nil {
			return interpreter.NewCall(part.ID(), part.Function(), part.OverloadID(), part.Args(), f), nil
		}
	}
	return part, nil
}

// boundedAttribute is a variable, or a part of it.
type boundedAttribute struct {
	interpreter.InterpretableAttribute
}

func (a boundedAttribute) Eval(vars interpreter.Activation) ref.Val {
	return bounded(a.InterpretableAttribute.Eval(vars))
}

func (a boundedAttribute) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	return bounded(a.InterpretableAttribute.Exec(frame))
}

func bounded(v ref.Val) ref.Val {
	if s, ok := v.(types.String); ok && len(s) > MaxOperand {
		return types.NewErr("a string of %d bytes is longer than expressions may read (%d)", len(s), MaxOperand)
	}
	return v
}

// boundedFunctions have the arguments that the checker has checked, unless these are dynamic.
var boundedFunctions = map[string]func(args ...ref.Val) ref.Val{"matches": matches, "replace": replace, "join": join}

func matches(args ...ref.Val) ref.Val {
	s, ok := args[0].(types.String)
	pattern, isString := args[1].(types.String)
	if !ok || !isString {
		return types.NoSuchOverloadErr()
	}
	if len(pattern) > MaxPattern {
		return types.NewErr("matches: a pattern of %d bytes that is no literal is longer than allowed (%d)", len(pattern), MaxPattern)
	}
	return s.Match(pattern)
}

// replace replaces at most as many occurrences as its fourth argument says; negative, or without it:
// all.
func replace(args ...ref.Val) ref.Val {
	var text [3]string
	for i := range text {
		s, ok := args[i].(types.String)
		if !ok {
			return types.NoSuchOverloadErr()
		}
		text[i] = string(s)
	}
	s, from, to := text[0], text[1], text[2]
	count := strings.Count(s, from)
	if len(args) > 3 {
		most, ok := args[3].(types.Int)
		if !ok {
			return types.NoSuchOverloadErr()
		}
		if most >= 0 {
			count = int(min(types.Int(count), most))
		}
	}
	if size := len(s) + count*(len(to)-len(from)); size > MaxResult {
		return tooLong("replace", size)
	}
	return types.String(strings.Replace(s, from, to, count))
}

// join joins a list with its second argument, if there is one.
func join(args ...ref.Val) ref.Val {
	list, ok := args[0].(traits.Lister)
	separator := types.String("")
	if ok && len(args) > 1 {
		separator, ok = args[1].(types.String)
	}
	if !ok {
		return types.NoSuchOverloadErr()
	}
	var parts []string
	size := 0
	for i := types.Int(0); i < list.Size().(types.Int); i++ {
		s, ok := list.Get(i).(types.String)
		if !ok {
			return types.NewErr("join: element %d is no string", i)
		}
		parts = append(parts, string(s))
		if size += len(s) + len(separator); size > MaxResult {
			return tooLong("join", size)
		}
	}
	return types.String(strings.Join(parts, string(separator)))
}

func tooLong(function string, size int) ref.Val {
	return types.NewErr("%s makes a string of %d bytes or more, which is longer than allowed (%d)", function, size, MaxResult)
}

// callCosts charges the calls that read whole lists, maps and messages by all that is in them. CEL would
// charge the length of the outermost list, or of the format string. For an in whose right side has a type
// only at run time, as metadata has, it would charge nothing.
type callCosts struct{}

// CallCost implements interpreter.ActualCostEstimator.
func (callCosts) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if function == operators.In {
		if list, ok := args[1].(traits.Lister); ok {
			cost := uint64(list.Size().(types.Int))
			return &cost
		}
	}
	switch overload {
	case overloads.Equals, overloads.NotEquals, overloads.ExtFormatString:
		cost := weight(result) / 10
		for _, a := range args {
			cost += weight(a) / 10
		}
		return &cost
	}
	return nil // CEL's cost
}

// weight is about the size of a value in bytes.
func weight(v ref.Val) (size uint64) {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case traits.Mapper: // before Lister: a map is iterated by its keys
		for i := v.Iterator(); i.HasNext() == types.True; {
			key := i.Next()
			size += 10 + weight(key) + weight(v.Get(key))
		}
	case traits.Lister:
		for i := v.Iterator(); i.HasNext() == types.True; {
			size += 10 + weight(i.Next())
		}
	default:
		if m, ok := v.Value().(proto.Message); ok {
			return uint64(proto.Size(m))
		}
	}
	return size
}
