package catalog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/template"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// Template is a template in the log under one of its names.
type Template struct {
	ID       template.ID
	Tenant   string
	Name     string
	Tag      string
	Tagged   time.Time
	Manifest template.Manifest // shared, must not be changed; zero if it was built
	Built    *template.Built   // result of a build; nil: the template has a manifest
}

// nameKey identifies a template name.
type nameKey struct{ tenant, name string }

// templateKey identifies a tag.
type templateKey struct{ tenant, name, tag string }

// templateDocs describes the tags of templates. They are events in the record of a name,
// which putTemplate appends and applyAccount folds.
var templateDocs = &fold.Document[templateKey, Template]{
	Name: "template", Stream: streams.Accounts,
	Subject: func(t *Template) string { return templateSubject(t.Tenant, t.Name) },
	Key:     func(t *Template) templateKey { return templateKey{t.Tenant, t.Name, t.Tag} },
	Compare: func(a, b Template) int {
		return strings.Compare(a.Tenant+"/"+a.Name+":"+a.Tag, b.Tenant+"/"+b.Name+":"+b.Tag)
	},
}

func templateSubject(tenant, name string) string { return "acct." + tenant + ".template." + name }

// TagTemplate moves a tenant's name and tag to the template with that manifest. The
// template's parts must be stored before.
func (d *Documents) TagTemplate(ctx context.Context, tenant string, ref template.Ref, manifest []byte) error {
	return d.putTemplate(ctx, tenant, ref, &pb.AccountEvent{Body: &pb.AccountEvent_TemplateTagged{
		TemplateTagged: &pb.TemplateTagged{Name: ref.Name, Tag: ref.Tag, Manifest: manifest},
	}})
}

// TagBuilt is TagTemplate for the result of a build, whose environment must be sealed.
func (d *Documents) TagBuilt(ctx context.Context, tenant string, ref template.Ref, b *template.Built) error {
	return d.putTemplate(ctx, tenant, ref, &pb.AccountEvent{Body: &pb.AccountEvent_TemplateTagged{
		TemplateTagged: &pb.TemplateTagged{Name: ref.Name, Tag: ref.Tag, Built: &pb.TemplateBuilt{
			Id: string(b.ID), Build: b.Build, Base: b.Base, Snapshot: b.Snapshot, SealedEnv: []byte(b.Sealed), User: b.User, Workdir: b.Workdir,
			Start: b.Start, Ready: b.Ready, CpuMilli: b.CPUMilli, MemoryMib: b.MemoryMiB,
		}},
	}})
}

func builtOf(b *pb.TemplateBuilt) *template.Built {
	return &template.Built{
		ID: template.ID(b.Id), Build: b.Build, Base: b.Base, Snapshot: b.Snapshot,
		Env: b.Env, Sealed: seal.Text(b.SealedEnv), User: b.User, Workdir: b.Workdir,
		Start: b.Start, Ready: b.Ready, CPUMilli: b.CpuMilli, MemoryMiB: b.MemoryMib,
	}
}

// UntagTemplate removes a name and a tag. A template without any is dropped.
func (d *Documents) UntagTemplate(ctx context.Context, tenant string, ref template.Ref) error {
	return d.putTemplate(ctx, tenant, ref, &pb.AccountEvent{Body: &pb.AccountEvent_TemplateUntagged{
		TemplateUntagged: &pb.TemplateUntagged{Name: ref.Name, Tag: ref.Tag},
	}})
}

// PublishTemplate sets whether all tenants may use a tenant's templates of a name; nil
// resets it.
func (d *Documents) PublishTemplate(ctx context.Context, tenant, name string, public *bool) error {
	return d.putTemplate(ctx, tenant, template.Ref{Name: name}, &pb.AccountEvent{Body: &pb.AccountEvent_TemplatePublished{
		TemplatePublished: &pb.TemplatePublished{Name: name, Public: public},
	}})
}

// putTemplate appends to the record of a name, whatever it holds: of two concurrent taggers
// the last one wins, as if they had run one after the other.
func (d *Documents) putTemplate(ctx context.Context, tenant string, ref template.Ref, e *pb.AccountEvent) error {
	e.TimeNs = codec.Nanos(time.Now())
	data, err := proto.Marshal(e)
	if err != nil {
		return kind.Wrap(kind.Internal, "tag template", ref.String(), err)
	}
	return d.conn.PutLast(ctx, streams.Accounts, templateSubject(tenant, ref.Name), data)
}

func (a *accountTable) applyTagged(subject string, at time.Time, e *pb.TemplateTagged) error {
	key, err := tagOf(subject, e.Name, e.Tag)
	if err != nil {
		return err
	}
	if e.Built != nil {
		b := builtOf(e.Built)
		a.templates.Set(Template{ID: b.ID, Tenant: key.tenant, Name: key.name, Tag: key.tag, Tagged: at, Built: b})
		return nil
	}
	m, id, err := template.Decode(e.Manifest)
	if err == nil {
		a.templates.Set(Template{ID: id, Tenant: key.tenant, Name: key.name, Tag: key.tag, Tagged: at, Manifest: m})
	}
	return err
}

func (a *accountTable) applyUntagged(subject string, e *pb.TemplateUntagged) error {
	key, err := tagOf(subject, e.Name, e.Tag)
	if err == nil {
		delete(a.templates.Docs, key)
	}
	return err
}

func (a *accountTable) applyPublished(subject string, e *pb.TemplatePublished) error {
	key, err := tagOf(subject, e.Name, "")
	switch {
	case err != nil:
		return err
	case e.Public == nil:
		delete(a.published, nameKey{key.tenant, key.name})
	default:
		a.published[nameKey{key.tenant, key.name}] = *e.Public
	}
	return nil
}

// Published returns whether all tenants may use a tenant's templates of that name, or only
// the tenant; set is false if that was never set.
func (a *accountTable) Published(tenant, name string) (public, set bool) {
	a.progress.Lock()
	defer a.progress.Unlock()
	public, set = a.published[nameKey{tenant, name}]
	return public, set
}

func tagOf(subject, name, tag string) (templateKey, error) {
	tenant, ok := tenantOf(subject)
	if !ok || subject != templateSubject(tenant, name) {
		return templateKey{}, fmt.Errorf("subject %q of template %q", subject, name)
	}
	return templateKey{tenant, name, tag}, nil
}

// Template resolves ref for a tenant. For an ID it returns one of its names, a hidden one
// only if there is no other.
func (a *accountTable) Template(tenant string, ref template.Ref) (Template, bool) {
	if ref.ID == "" {
		return a.templates.Get(templateKey{tenant, ref.Name, ref.Tag})
	}
	var found Template
	for _, t := range a.Templates(tenant) {
		if !strings.HasPrefix(string(t.ID), ref.ID) {
			continue
		}
		if found.ID != "" && found.ID != t.ID {
			return Template{}, false // ambiguous
		}
		if found.ID == "" || !template.Hidden(t.Name) {
			found = t
		}
	}
	return found, found.ID != ""
}

// Templates returns a tenant's ("": all) templates by name and tag, once per name.
func (a *accountTable) Templates(tenant string) []Template {
	return a.templates.List(func(t *Template) bool { return tenant == "" || t.Tenant == tenant })
}

// TemplateByID finds a template of any tenant. It is for hosts, to which a sandbox's record
// gives the template's ID.
func (a *accountTable) TemplateByID(id template.ID) (Template, bool) {
	return a.Template("", template.Ref{ID: string(id)})
}
