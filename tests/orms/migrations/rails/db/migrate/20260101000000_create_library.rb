class CreateLibrary < ActiveRecord::Migration[6.1]
  def change
    create_table :authors do |t|
      t.string :name, null: false
      t.timestamps
    end
    create_table :tags do |t|
      t.string :name, null: false, index: { unique: true }
    end
    create_table :books do |t|
      t.string :title, null: false
      t.references :author, null: false, foreign_key: true
      t.timestamps
    end
    create_join_table :books, :tags
  end
end
