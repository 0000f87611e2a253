require "active_record"
require "active_record/fixtures"

ActiveRecord::Base.establish_connection(
  adapter: "postgresql", host: ENV["PGHOST"], port: ENV["PGPORT"], username: ENV["PGUSER"], database: ENV["PGDATABASE"]
)

class Author < ActiveRecord::Base
  has_many :books
end

class Tag < ActiveRecord::Base
end

class Book < ActiveRecord::Base
  belongs_to :author
  has_and_belongs_to_many :tags
end
