require_relative "environment"

ActiveRecord::SchemaDumper.dump(ActiveRecord::Base.connection, $stdout)
