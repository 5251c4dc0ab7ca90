package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"os"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

type provider struct {
	// Methods that are not overridden are not called by these tests.
	tfprotov5.ProviderServer
	name    string
	schemas *schemas
}

func failed(err error) []*tfprotov5.Diagnostic {
	return []*tfprotov5.Diagnostic{{Severity: tfprotov5.DiagnosticSeverityError, Summary: err.Error()}}
}

func (p *provider) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (*tfprotov5.GetProviderSchemaResponse, error) {
	return &tfprotov5.GetProviderSchemaResponse{
		Provider: p.schemas.provider, ResourceSchemas: p.schemas.resources, DataSourceSchemas: p.schemas.dataSources,
		ServerCapabilities: &tfprotov5.ServerCapabilities{},
	}, nil
}

func (p *provider) GetResourceIdentitySchemas(context.Context, *tfprotov5.GetResourceIdentitySchemasRequest) (*tfprotov5.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov5.GetResourceIdentitySchemasResponse{}, nil
}

func (p *provider) PrepareProviderConfig(_ context.Context, request *tfprotov5.PrepareProviderConfigRequest) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: request.Config}, nil
}

func (p *provider) ConfigureProvider(_ context.Context, request *tfprotov5.ConfigureProviderRequest) (*tfprotov5.ConfigureProviderResponse, error) {
	config, err := request.Config.Unmarshal(p.schemas.provider.ValueType())
	if err == nil {
		err = record("configure", p.name, config)
	}
	if err != nil {
		return &tfprotov5.ConfigureProviderResponse{Diagnostics: failed(err)}, nil
	}
	return &tfprotov5.ConfigureProviderResponse{}, nil
}

func (p *provider) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}

func (p *provider) ValidateDataSourceConfig(context.Context, *tfprotov5.ValidateDataSourceConfigRequest) (*tfprotov5.ValidateDataSourceConfigResponse, error) {
	return &tfprotov5.ValidateDataSourceConfigResponse{}, nil
}

func (p *provider) ValidateResourceTypeConfig(_ context.Context, request *tfprotov5.ValidateResourceTypeConfigRequest) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	values, _, err := p.values(request.TypeName, request.Config)
	if err != nil {
		return &tfprotov5.ValidateResourceTypeConfigResponse{Diagnostics: failed(err)}, nil
	}
	var diagnostics []*tfprotov5.Diagnostic
	for name, most := range charactersMax[request.TypeName] {
		var text string
		if value := values[name]; !value.IsKnown() || value.IsNull() || value.As(&text) != nil || len(text) <= most {
			continue
		}
		diagnostics = append(diagnostics, failed(fmt.Errorf("%s.%s has %d characters, and at most %d are allowed", request.TypeName, name, len(text), most))...)
	}
	return &tfprotov5.ValidateResourceTypeConfigResponse{Diagnostics: diagnostics}, nil
}

func (p *provider) UpgradeResourceState(_ context.Context, request *tfprotov5.UpgradeResourceStateRequest) (*tfprotov5.UpgradeResourceStateResponse, error) {
	kind := p.schemas.resources[request.TypeName].ValueType()
	state, err := request.RawState.Unmarshal(kind)
	if err != nil {
		return &tfprotov5.UpgradeResourceStateResponse{Diagnostics: failed(err)}, nil
	}
	upgraded, err := tfprotov5.NewDynamicValue(kind, state)
	if err != nil {
		return &tfprotov5.UpgradeResourceStateResponse{Diagnostics: failed(err)}, nil
	}
	return &tfprotov5.UpgradeResourceStateResponse{UpgradedState: &upgraded}, nil
}

func (p *provider) ReadResource(_ context.Context, request *tfprotov5.ReadResourceRequest) (*tfprotov5.ReadResourceResponse, error) {
	return &tfprotov5.ReadResourceResponse{NewState: request.CurrentState}, nil
}

// Attributes that the provider computes and that are not configured are unknown before creation; later they keep their values.
func (p *provider) PlanResourceChange(_ context.Context, request *tfprotov5.PlanResourceChangeRequest) (*tfprotov5.PlanResourceChangeResponse, error) {
	prior, _, err := p.values(request.TypeName, request.PriorState)
	if err != nil {
		return &tfprotov5.PlanResourceChangeResponse{Diagnostics: failed(err)}, nil
	}
	if prior != nil {
		return &tfprotov5.PlanResourceChangeResponse{PlannedState: request.ProposedNewState}, nil
	}
	planned, err := p.changed(request.TypeName, request.ProposedNewState, func(name string, kind tftypes.Type, value tftypes.Value, _ map[string]tftypes.Value) tftypes.Value {
		if value.IsKnown() && value.IsNull() {
			return tftypes.NewValue(kind, tftypes.UnknownValue)
		}
		return value
	})
	if err != nil {
		return &tfprotov5.PlanResourceChangeResponse{Diagnostics: failed(err)}, nil
	}
	return &tfprotov5.PlanResourceChangeResponse{PlannedState: planned}, nil
}

func (p *provider) ApplyResourceChange(_ context.Context, request *tfprotov5.ApplyResourceChangeRequest) (*tfprotov5.ApplyResourceChangeResponse, error) {
	state, err := p.changed(request.TypeName, request.PlannedState, func(name string, kind tftypes.Type, value tftypes.Value, others map[string]tftypes.Value) tftypes.Value {
		if value.IsKnown() {
			return value
		}
		return madeUp(request.TypeName, name, kind, others)
	})
	if err == nil {
		kind := p.schemas.resources[request.TypeName].ValueType()
		verb, recorded := "make", state
		if value, _ := state.Unmarshal(kind); value.IsNull() {
			verb, recorded = "end", request.PriorState
		}
		var value tftypes.Value
		if value, err = recorded.Unmarshal(kind); err == nil {
			err = record(verb, request.TypeName, value)
		}
	}
	if err != nil {
		return &tfprotov5.ApplyResourceChangeResponse{NewState: request.PriorState, Diagnostics: failed(err)}, nil
	}
	return &tfprotov5.ApplyResourceChangeResponse{NewState: state}, nil
}

func (p *provider) ReadDataSource(_ context.Context, request *tfprotov5.ReadDataSourceRequest) (*tfprotov5.ReadDataSourceResponse, error) {
	schema := p.schemas.dataSources[request.TypeName]
	kind := schema.ValueType()
	config, err := request.Config.Unmarshal(kind)
	values := map[string]tftypes.Value{}
	if err == nil {
		err = config.As(&values)
	}
	for _, attribute := range schema.Block.Attributes {
		if value := values[attribute.Name]; err == nil && attribute.Computed && value.IsNull() {
			values[attribute.Name], err = answer(request.TypeName, attribute)
		}
	}
	var state tfprotov5.DynamicValue
	if err == nil {
		state, err = tfprotov5.NewDynamicValue(kind, tftypes.NewValue(kind, values))
	}
	if err != nil {
		return &tfprotov5.ReadDataSourceResponse{Diagnostics: failed(err)}, nil
	}
	return &tfprotov5.ReadDataSourceResponse{State: &state}, nil
}

func (p *provider) values(resource string, dynamic *tfprotov5.DynamicValue) (map[string]tftypes.Value, tftypes.Type, error) {
	schema, known := p.schemas.resources[resource]
	if !known {
		return nil, nil, fmt.Errorf("%s is not known here", resource)
	}
	kind := schema.ValueType()
	value, err := dynamic.Unmarshal(kind)
	if err != nil || value.IsNull() {
		return nil, kind, err
	}
	values := map[string]tftypes.Value{}
	return values, kind, value.As(&values)
}

// The object with every computed attribute passed through change; null, which means that it ends, stays as it is.
func (p *provider) changed(
	resource string, dynamic *tfprotov5.DynamicValue,
	change func(name string, kind tftypes.Type, value tftypes.Value, others map[string]tftypes.Value) tftypes.Value,
) (*tfprotov5.DynamicValue, error) {
	values, kind, err := p.values(resource, dynamic)
	if err != nil || values == nil {
		return dynamic, err
	}
	for _, attribute := range p.schemas.resources[resource].Block.Attributes {
		if attribute.Computed {
			values[attribute.Name] = change(attribute.Name, attribute.Type, values[attribute.Name], values)
		}
	}
	result, err := tfprotov5.NewDynamicValue(kind, tftypes.NewValue(kind, values))
	return &result, err
}

func record(verb, what string, value tftypes.Value) error {
	path := os.Getenv("STANDIN_LOG")
	if path == "" {
		return nil
	}
	plain, err := plainOf(value)
	if err != nil {
		return err
	}
	line, err := json.Marshal(map[string]any{"verb": verb, "what": what, "values": plain})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(append(line, '\n'))
	return err
}

// The value as JSON, without null and unknown values.
func plainOf(value tftypes.Value) (any, error) {
	if !value.IsKnown() || value.IsNull() {
		return nil, nil
	}
	switch kind := value.Type(); {
	case kind.Is(tftypes.String):
		var text string
		err := value.As(&text)
		return text, err
	case kind.Is(tftypes.Bool):
		var truth bool
		err := value.As(&truth)
		return truth, err
	case kind.Is(tftypes.Number):
		number := new(big.Float)
		err := value.As(&number)
		plain, _ := number.Float64()
		return plain, err
	case kind.Is(tftypes.Object{}), kind.Is(tftypes.Map{}):
		values, plain := map[string]tftypes.Value{}, map[string]any{}
		if err := value.As(&values); err != nil {
			return nil, err
		}
		for name, each := range values {
			inner, err := plainOf(each)
			if err != nil {
				return nil, err
			}
			if inner != nil {
				plain[name] = inner
			}
		}
		return plain, nil
	default:
		values, plain := []tftypes.Value{}, []any{}
		if err := value.As(&values); err != nil {
			return nil, err
		}
		for _, each := range values {
			inner, err := plainOf(each)
			if err != nil {
				return nil, err
			}
			plain = append(plain, inner)
		}
		return plain, nil
	}
}
