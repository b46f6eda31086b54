package connect

// NewStruct makes a struct of values in schema order, which it keeps, and
// refuses what Connect's Struct.put refuses. A value short of the fields is
// null.
func NewStruct(s *Schema, values []Value) (Value, error) {
	for i, f := range s.Fields {
		if err := Validate(f.Name, f.Schema, values[i]); err != nil {
			return Null, err
		}
	}
	return StructOf(s, values), nil
}

// StructOf makes a struct of values that are known to fit the schema.
func StructOf(s *Schema, values []Value) Value {
	return Value{kind: KindStruct, node: &node{schema: s, items: values}}
}

// Validate reports, in Connect's words, why v cannot be the field of a struct.
func Validate(field string, s *Schema, v Value) error {
	if v.kind == KindNull {
		if !s.Optional {
			return DataErrorf("Invalid value: null used for required field: %q, schema type: %s", field, s.Type)
		}
		return nil
	}
	want := s.logicalKind()
	if want != KindNull && want != v.kind || want == KindNull && !s.Type.Fits(v.kind) {
		if s.Name != "" {
			return DataErrorf("Invalid Java object for schema %q with type %s: %s for field: %q", s.Name, s.Type, v.kind, field)
		}
		return DataErrorf("Invalid Java object for schema with type %s: %s for field: %q", s.Type, v.kind, field)
	}
	switch v.kind {
	case KindStruct:
		if !v.node.schema.Equal(s) {
			return DataErrorf("Struct schemas do not match.")
		}
	case KindArray:
		for _, item := range v.node.items {
			if err := Validate("array element", s.Elem, item); err != nil {
				return err
			}
		}
	case KindMap:
		for i := 0; i+1 < len(v.node.items); i += 2 {
			if err := Validate("map key", s.Key, v.node.items[i]); err != nil {
				return err
			}
			if err := Validate("map value", s.Elem, v.node.items[i+1]); err != nil {
				return err
			}
		}
	default: // nothing nested
	}
	return nil
}

// NewStructSchema checks names as Connect's SchemaBuilder does.
func NewStructSchema(name string, fields []Field) (*Schema, error) {
	for i, f := range fields {
		if f.Name == "" {
			return nil, DataErrorf("fieldName cannot be null.")
		}
		for _, before := range fields[:i] {
			if before.Name == f.Name {
				return nil, DataErrorf("Cannot create field because of field name duplication %s", f.Name)
			}
		}
	}
	return &Schema{Type: Struct, Name: name, Fields: fields}, nil
}

// Fits reports whether Java could cast a value of the kind to the class that
// the schema type stands for.
func (t Type) Fits(k Kind) bool {
	switch t {
	case Int8:
		return k == KindInt8
	case Int16:
		return k == KindInt16
	case Int32:
		return k == KindInt32
	case Int64:
		return k == KindInt64
	case Float32:
		return k == KindFloat32
	case Float64:
		return k == KindFloat64
	case Boolean:
		return k == KindBoolean
	case String:
		return k == KindString
	case Bytes:
		return k == KindBytes || k == KindBuffer
	case Array:
		return k == KindArray
	case Map:
		return k == KindMap
	case Struct:
		return k == KindStruct
	default:
		return false
	}
}

// logicalKind is the kind that a logical type of Connect itself demands;
// KindNull for any other schema.
func (s *Schema) logicalKind() Kind {
	switch s.Name {
	case DecimalName:
		return KindDecimal
	case DateName, TimeName, TimestampName:
		return KindDate
	default:
		return KindNull
	}
}
