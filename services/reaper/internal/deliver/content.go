package deliver

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/webhook"
)

// content returns the headers and the body of a delivery in the webhook's format.
func content(h *catalog.Hook, all []*webhook.Event, secret string, a *webhook.Attempt) (map[string]string, []byte, error) {
	e := all[0]
	switch h.Format {
	case webhook.FormatStandard:
		id := e.ID
		body, err := e.Standard()
		if len(all) > 1 {
			id, body, err = webhook.StandardBatch(all)
		}
		return map[string]string{
			"Content-Type":                  "application/json",
			webhook.HeaderStandardID:        id,
			webhook.HeaderStandardTimestamp: strconv.FormatInt(a.Time.Unix(), 10),
			webhook.HeaderStandardSignature: webhook.SignStandard(secret, id, a.Time, body),
		}, body, err
	case webhook.FormatOTLP:
		body, err := logsData(all, a.Time)
		return map[string]string{"Content-Type": "application/x-protobuf", "Authorization": "Bearer " + secret}, body, err
	}
	body, err := e.Payload()
	return map[string]string{
		"Content-Type":          "application/json",
		webhook.HeaderWebhook:   string(h.ID),
		webhook.HeaderDelivery:  a.ID,
		webhook.HeaderVersion:   webhook.SignatureVersion,
		webhook.HeaderSignature: webhook.Sign(secret, body),
	}, body, err
}

// logsData encodes events of a tenant as OpenTelemetry's ExportLogsServiceRequest, which has the
// same bytes as LogsData.
func logsData(all []*webhook.Event, sent time.Time) ([]byte, error) {
	records := make([]*logs.LogRecord, len(all))
	for i, e := range all {
		var err error
		if records[i], err = logRecord(e, sent); err != nil {
			return nil, err
		}
	}
	return proto.Marshal(&logs.LogsData{ResourceLogs: []*logs.ResourceLogs{{
		Resource:  &resource.Resource{Attributes: []*common.KeyValue{text("service.name", "millrace"), text("millrace.tenant", all[0].Tenant)}},
		ScopeLogs: []*logs.ScopeLogs{{Scope: &common.InstrumentationScope{Name: "millrace"}, LogRecords: records}},
	}}})
}

// logRecord encodes an event as a log record. Its body is E2B's payload.
func logRecord(e *webhook.Event, sent time.Time) (*logs.LogRecord, error) {
	body, err := e.Payload()
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	attributes := []*common.KeyValue{text("event.id", e.ID), text("millrace.sandbox.id", string(e.Ref.Sandbox)), text("millrace.template.id", e.Template)}
	if e.Reason != "" {
		attributes = append(attributes, text("millrace.reason", e.Reason))
	}
	if e.Ref.Process != "" {
		attributes = append(attributes, text("millrace.process.id", string(e.Ref.Process)))
	}
	out := &logs.LogRecord{
		TimeUnixNano: uint64(e.Time.UnixNano()), ObservedTimeUnixNano: uint64(sent.UnixNano()), EventName: string(e.Type),
		SeverityNumber: logs.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO", Body: anyValue(fields), Attributes: attributes,
	}
	if t := traceOf(e); t != nil {
		span := t.SpanFor(e.Ref.Process)
		out.TraceId, out.SpanId, out.Flags = t.ID[:], span[:], uint32(t.Flags)
	}
	return out, nil
}

// traceOf returns the context of the trace of an event's process; nil: none.
func traceOf(e *webhook.Event) *process.Trace {
	if e.Process == nil {
		return nil
	}
	return e.Process.Spec.Trace
}

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: anyValue(value)}
}

// anyValue encodes a decoded JSON value.
func anyValue(v any) *common.AnyValue {
	switch v := v.(type) {
	case string:
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: v}}
	case bool:
		return &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: v}}
	case float64:
		return &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: v}}
	case map[string]any:
		var list common.KeyValueList
		for _, key := range slices.Sorted(maps.Keys(v)) {
			list.Values = append(list.Values, &common.KeyValue{Key: key, Value: anyValue(v[key])})
		}
		return &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: &list}}
	case []any:
		var list common.ArrayValue
		for _, value := range v {
			list.Values = append(list.Values, anyValue(value))
		}
		return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: &list}}
	}
	return &common.AnyValue{}
}
