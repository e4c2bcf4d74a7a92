package kinds

// What every table begins and most end with.
var (
	nameColumn = Column{
		Name: "Name", Type: "string", Format: "name",
		Description: "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
		JSONPath:    ".metadata.name", Default: "",
	}
	ageColumn = Column{
		Name: "Age", Type: "string",
		Description: "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
		CEL:         "age(self.metadata.creationTimestamp)",
	}
)

// TableColumns are Columns, or Name and Age where there are none.
func (r *Resource) TableColumns() []Column {
	if len(r.Columns) > 0 {
		return r.Columns
	}
	return []Column{nameColumn, ageColumn}
}
