import { PrismaPg } from "prisma-adapter-pg-7";
import { defineConfig } from "prisma/config";

export default defineConfig({
  // The engine that the package has, in place of one that Prisma downloads. It needs a newer adapter.
  experimental: { adapter: true },
  engine: "js",
  adapter: async () => new PrismaPg({ connectionString: process.env.DATABASE_URL }),
  schema: "schema.prisma",
  migrations: { path: "migrations" },
});
