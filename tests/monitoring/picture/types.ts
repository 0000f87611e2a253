// What docs/monitoring/dashboard.json may be, by Grafana's own types.
import type { Dashboard as Whole, DataQuery, DataSourceRef, FieldConfig, FieldConfigSource, GraphFieldConfig, Panel, VariableModel } from '@grafana/schema';
import type { Options as StatOptions } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { Options as GraphOptions } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// JSON has the text of an enum's value in place of the value.
type Json<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Json<T[K]> } : T;

// The package has neither the fields of a query to Prometheus nor those of a variable that is
// one, and Grafana gives options that are left out their defaults.
type Query = DataQuery & { datasource: DataSourceRef; expr: string; legendFormat: string; instant?: boolean; range?: boolean };
type Of<Type, Options, Custom> = Omit<Panel, 'type' | 'options' | 'targets' | 'fieldConfig'> & {
  type: Type;
  options: Options;
  targets: Query[];
  fieldConfig: Omit<FieldConfigSource, 'defaults'> & { defaults: Omit<FieldConfig, 'custom'> & { custom?: Custom } };
};
type Drawn = Of<'stat', Partial<StatOptions>, never> | Of<'timeseries', GraphOptions, GraphFieldConfig>;

export type Dashboard = Json<
  Omit<Whole, 'panels' | 'templating'> & { panels: Drawn[]; templating: { list: Array<VariableModel & { definition?: string }> } }
>;

// If the types took everything, these lines would be no errors, and that is one.
type Panels = Dashboard['panels'][0];
// @ts-expect-error: the type of a panel before Grafana 8
export const type: Panels['type'] = 'graph';
// @ts-expect-error: an option that no panel has
export const options: Panels['options'] = { colourMode: 'background' };
// @ts-expect-error: a text that is none of an enum
export const color: Panels['fieldConfig']['defaults']['color'] = { mode: 'palette' };
// @ts-expect-error: a number in place of a text
export const whole: Pick<Dashboard, 'refresh'> = { refresh: 30 };
